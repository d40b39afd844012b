"""Studies on a Ray cluster of three machines, which are processes of this one."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import ray
from ray.cluster_utils import Cluster

import tenuto
from tenuto import cli, extras
from tenuto.engines import attempts, study, work
from tenuto.engines.attempts import FINISHED
from tenuto.engines.on_ray import OnRay
from tenuto.errors import UserError
from tenuto.runs import folders
from tenuto.runs.jobs import job_for
from tenuto.trainers import devices
from test_engines import JOBS, LONG, do, local, trained, wait_for

STORE = 80 * 2**20  # bytes of a node's object store, the least that Ray takes
IMPATIENT = {  # a machine that is gone is noticed in seconds, where Ray's defaults take over a minute
    "health_check_initial_delay_ms": 0,
    "health_check_period_ms": 500,
    "health_check_timeout_ms": 1000,
    "health_check_failure_threshold": 3,
}

DEADLY = """
import os
import gymnasium

class Deadly(gymnasium.Env):
    observation_space, action_space = gymnasium.spaces.Discrete(2), gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return 0, {}

    def step(self, action):
        os._exit(1) if os.environ.get("TENUTO_CORES") else None  # only in a worker
        return 0, 0.0, True, False, {}

gymnasium.register("Deadly-v0", Deadly, max_episode_steps=3)
"""
TELLING = """
import json, os, pathlib
import gymnasium

class Telling(gymnasium.Env):
    observation_space, action_space = gymnasium.spaces.Discrete(2), gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        if os.environ.get("TENUTO_CORES"):
            import jax
            told = {name: os.environ.get(name) for name in TOLD} | {"devices": len(jax.local_devices())}
            pathlib.Path(__file__).with_name(f"{os.getpid()}.json").write_text(json.dumps(told))
        return 0, {}

    def step(self, action):
        return 0, 0.0, True, False, {}

TOLD = ("CUDA_VISIBLE_DEVICES", "XLA_PYTHON_CLIENT_MEM_FRACTION", "JAX_PLATFORMS", "TENUTO_CORES")
gymnasium.register("Telling-v0", Telling, max_episode_steps=3)
"""
DRIVER = """
import sys, threading
from pathlib import Path
sys.path[:0] = [{tests!r}]
from test_engines import JOBS, LONG, study
from tenuto.engines.on_ray import OnRay
engine = OnRay(study.new_call(), workers=1, cores=1, gpus=0.0, address=sys.argv[2])
study.run([LONG, *JOBS], Path(sys.argv[1]), engine, report=lambda *args: None, stop=threading.Event())
"""


@pytest.fixture(scope="module")
def modules(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder whose modules the workers can import: an environment that ends its process, and one that says what
    process it is in."""
    folder = tmp_path_factory.mktemp("modules")
    (folder / "deadly.py").write_text(DEADLY)
    (folder / "telling.py").write_text(TELLING)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(folder))
        patch.syspath_prepend(folder)
        yield folder


@pytest.fixture(scope="module")
def cluster(modules: Path) -> Iterator[object]:
    head = {"num_cpus": 1, "object_store_memory": STORE, "include_dashboard": False, "_system_config": IMPATIENT}
    found = Cluster(initialize_head=True, head_node_args=head)
    for _ in range(2):
        found.add_node(num_cpus=1, object_store_memory=STORE)
    yield found
    found.shutdown()


def on(cluster: object, **more: object) -> OnRay:
    asked = {"workers": None, "cores": 1, "gpus": 0.0, "address": cluster.address} | more  # type: ignore[attr-defined]
    return OnRay(study.new_call(), **asked)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same study without any cluster."""
    out = tmp_path_factory.mktemp("home")
    do([LONG, *JOBS], out, local())
    return out


def test_a_study_on_a_cluster_ends_as_at_home_whoever_is_killed(cluster: object, tmp_path: Path, home: Path):
    """The worker at the long job is killed in its middle; when the job goes on, a whole machine is taken away."""
    folder = tmp_path / "ray" / "jobs" / LONG.name
    killed: list[int] = []

    def disturb() -> None:
        wait_for(lambda: (folder / "metrics.jsonl").exists())
        killed.append(attempts.read(folder)[-1].pid)
        os.kill(killed[0], signal.SIGKILL)
        wait_for(lambda: len(attempts.read(folder)) > 1)
        own = ray.get_runtime_context().get_node_id()  # a driver whose machine goes is gone too
        cluster.remove_node(next(node for node in cluster.worker_nodes if node.node_id != own))  # type: ignore[attr-defined]

    disturber = threading.Thread(target=disturb)
    disturber.start()
    engine = on(cluster)
    assert engine.workers == 3
    assert sorted(do([LONG, *JOBS], tmp_path / "ray", engine)) == sorted(j.name for j in (*JOBS, LONG))
    disturber.join()
    tried = attempts.read(folder)
    assert (tried[0].pid, tried[0].how, tried[-1].how) == (killed[0], "", FINISHED)
    assert tried[0].pid != os.getpid()
    for each in (*JOBS, LONG):
        assert [a.how for a in attempts.read(tmp_path / "ray" / "jobs" / each.name)].count(FINISHED) == 1
        assert trained(tmp_path / "ray", each) == trained(home, each)
    assert not list((tmp_path / "ray").glob(f"{work.STOP}*"))


def test_a_job_that_kills_its_workers_is_given_up_and_the_others_are_done(cluster: object, tmp_path: Path):
    """As a job does that needs more memory than there is."""
    bad = job_for("deadly:Deadly-v0", "random", "standard", seeds=1, steps=20, evaluate_every=0)
    engine = on(cluster)
    engine.tries = 2
    with pytest.raises(UserError, match=r"Deadly.*\(2 attempts\): its worker was lost"):
        do([bad, JOBS[0]], tmp_path / "out", engine)
    assert [a.how for a in attempts.read(tmp_path / "out" / "jobs" / bad.name)] == ["", ""]
    assert folders.finished(tmp_path / "out" / "jobs" / JOBS[0].name)


def test_a_second_command_takes_up_what_a_killed_one_leaves(cluster: object, tmp_path: Path, home: Path):
    """Two commands at one study. The first one's worker halts in the middle of a job, which the second waits for; then
    the first is killed, and Ray ends its worker."""
    code, address = DRIVER.format(tests=str(Path(__file__).parent)), str(cluster.address)  # type: ignore[attr-defined]
    first = subprocess.Popen([sys.executable, "-c", code, str(tmp_path), address])
    folder = tmp_path / "jobs" / LONG.name
    wait_for((folder / "metrics.jsonl").exists)
    os.kill(attempts.read(folder)[0].pid, signal.SIGSTOP)

    def kill() -> None:
        wait_for(lambda: any(a.how == attempts.ELSEWHERE for a in attempts.read(folder)))
        first.kill()

    killer = threading.Thread(target=kill)
    killer.start()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(study, "ELSEWHERE_SECONDS", 0.2)
        assert sorted(do([LONG, *JOBS], tmp_path, on(cluster))) == sorted(j.name for j in (*JOBS, LONG))
    killer.join()
    first.wait()
    for each in (*JOBS, LONG):
        how = [a.how for a in attempts.read(tmp_path / "jobs" / each.name)]
        assert how.count(FINISHED) == 1
        assert trained(tmp_path, each) == trained(home, each)
    assert attempts.read(folder)[0].how == ""


def test_a_worker_of_another_version_refuses(cluster: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(tenuto, "__version__", "99.0")  # of this command; workers have their own
    with pytest.raises(UserError, match=r"its worker has tenuto \d.* and the command 99\.0: install the same version"):
        do(JOBS[:1], tmp_path, on(cluster))
    assert not attempts.read(tmp_path / "jobs" / JOBS[0].name)


def test_workers_see_their_share_of_the_machine(cluster: object, modules: Path, tmp_path: Path):
    """A machine with a GPU, as far as Ray knows: two workers share it, and each has half of its memory."""
    node = cluster.add_node(num_cpus=2, num_gpus=1, object_store_memory=STORE)  # type: ignore[attr-defined]
    asked = {"seeds": 1, "steps": 20, "evaluate_every": 0}
    todo = [job_for("telling:Telling-v0", "random", "standard", first_seed=i, **asked) for i in range(2)]  # type: ignore[arg-type]
    engine = on(cluster, gpus=0.5)
    assert engine.workers == 2
    do(todo, tmp_path, engine)
    cluster.remove_node(node)  # type: ignore[attr-defined]
    told = [json.loads(path.read_text()) for path in modules.glob("*.json")]
    assert {each["CUDA_VISIBLE_DEVICES"] for each in told} == {"0"}
    assert {float(each["XLA_PYTHON_CLIENT_MEM_FRACTION"]) for each in told} == {work.GPU_SHARE / 2}
    assert {(each[devices.CORES], each["devices"]) for each in told} == {("1", 1)}


def test_a_stop_reaches_workers_elsewhere(cluster: object, tmp_path: Path):
    stop, log = threading.Event(), tmp_path / "jobs" / LONG.name / "metrics.jsonl"
    waiting = threading.Thread(target=lambda: (wait_for(log.exists), stop.set()))
    waiting.start()
    with pytest.raises(study.Interrupted):
        do([LONG, *JOBS], tmp_path, on(cluster, workers=1), stop)
    waiting.join()
    assert folders.unfinished(tmp_path / "jobs" / LONG.name)
    assert attempts.read(tmp_path / "jobs" / LONG.name)[0].how == attempts.STOPPED


@pytest.mark.parametrize(
    ("more", "told"), [({"gpus": 1.0}, "has 0 GPUs|and 0 GPUs"), ({"cores": 64}, "too few for a worker with 64")]
)
def test_workers_that_fit_nowhere_are_refused(cluster: object, more: dict[str, object], told: str):
    with pytest.raises(UserError, match=told):
        on(cluster, **more)


def test_words_about_ray_are_answered_in_a_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    words = ["reproduce", "chain", "--quick", "--out", str(tmp_path / "out"), "--engine"]
    assert cli.run([*words, "rey"]) == 2
    assert "did you mean 'ray'?" in capsys.readouterr().err
    assert cli.run([*words, "ray", "--address", "127.0.0.1:1"]) == 2
    said = capsys.readouterr().err
    assert "no Ray cluster at 127.0.0.1:1" in said
    monkeypatch.setitem(sys.modules, "ray", None)
    assert cli.run([*words, "ray"]) == 2
    assert f"needs ray: {extras.command('ray')}" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
