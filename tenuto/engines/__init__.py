"""Where jobs are run: in threads of this process, or in processes of their own. The folder of a study is the truth; an
engine only places work. `study.py` is the driver, `work.py` what a worker does, the rest are engines."""
