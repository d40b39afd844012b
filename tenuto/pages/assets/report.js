// The report: the paper's numbers beside ours, table by table, with curves and statistics on demand.
"use strict";

const MARKS = { inside: "✓ inside", above: "▲ above", below: "▼ below" };
const MOST_PANELS = 12;

function report() {
  const sections = [...DATA.experiments.map(experimentSection), findingsSection()].filter(Boolean);
  const links = sections.map((s) => el("li", {}, el("a", { href: `#${s.id}` }, s.querySelector("h2").firstChild.textContent)));
  document.body.append(
    topBar(DATA.title),
    el("nav", { "aria-label": "Sections" }, el("ul", {}, links)),
    el("main", {}, overview(), sections, el("footer", {}, el("p", { class: "quiet" }, DATA.made))),
  );
  addEventListener("beforeprint", openAll);
}

// Everything, drawn at once: what is printed is not waited for.
function openAll() {
  for (let closed; (closed = document.querySelectorAll("details:not([open])")).length;) {
    closed.forEach((each) => { each.fill?.(); each.open = true; });
  }
  document.querySelectorAll("figure").forEach((each) => each.redraw?.());
}

// What the paper has, and how much of it is here

function overview() {
  if (!DATA.items.length) return null;
  const shown = DATA.items.map((item) => el("tr", {},
    el("th", { scope: "row" }, itemLink(item), el("small", { class: "label" }, item.label)),
    el("td", { class: "words" }, item.about),
    el("td", { class: "words" }, item.kept.length ? item.kept.map(status) : el("span", { class: "missing" }, "not run")),
    el("td", { class: "words" }, el("code", {}, item.command)),
  ));
  return el("section", { id: "overview" },
    el("h2", {}, "The paper at a glance"),
    el("p", {}, "Each table and figure of the paper with measured numbers, and how the published values lie to ours: ",
      el("span", { class: "inside" }, "✓ inside"), " our 95% interval, or our number is ",
      el("span", { class: "above" }, "▲ above"), " or ", el("span", { class: "below" }, "▼ below"),
      " it. A published value has noise of its own."),
    el("div", { class: "wide", tabindex: "0", role: "region", "aria-label": "The paper at a glance" },
      el("table", {}, el("thead", {}, el("tr", {}, ["", "what", "here", "command"].map((name) => el("th", { scope: "col" }, name)))),
        el("tbody", {}, shown))),
  );
}

// The name of a table or figure, which leads to it where it is here.
function itemLink(item) {
  const block = () => item.tables.map((table) => document.querySelector(`[data-table="${CSS.escape(table)}"]`)).find(Boolean);
  const here = item.tables.some((table) => DATA.experiments.some((each) => each.tables.some((made) => made.table === table)));
  return here ? el("a", { href: "#", onclick: (event) => {
    event.preventDefault();
    block().fill();
    block().open = true;
    block().scrollIntoView();
    block().querySelector("summary").focus({ preventScroll: true });
  } }, item.name) : item.name;
}

function status(kept) {
  const counts = [["inside", kept.inside], ["above", kept.above], ["below", kept.below]].filter(([, n]) => n);
  const outside = kept.above + kept.below;
  const parts = [["inside", kept.inside], ["outside", outside], ["alone", kept.have - kept.inside - outside], ["lacking", kept.of - kept.have]];
  return el("span", { class: "status" },
    el("code", {}, kept.setting), ` ${kept.have} of ${kept.of} cells`,
    counts.map(([name, n], i) => [i ? ", " : ": ", el("span", { class: name }, `${n} ${MARKS[name]}`)]),
    el("span", { class: "bar", "aria-hidden": "true" }, parts.filter(([, n]) => n > 0).map(([name, n]) => {
      const part = el("i", { class: name });
      part.style.flexGrow = n;
      return part;
    })),
    el("small", {}, [seedsOf(kept.seeds), kept.steps ? `${listed(kept.steps)} steps` : null].filter(Boolean).join(", ")));
}

function listed(numbers) {
  return [numbers].flat().map(count).join(" or ");
}

function seedsOf(numbers) {
  const many = [numbers].flat();
  return many.length ? `${many.join(" or ")} ${many.length === 1 && many[0] === 1 ? "seed" : "seeds"}` : null;
}

// An experiment

function experimentSection(experiment) {
  const labels = [...new Set(experiment.tables.map((table) => table.table))];
  return el("section", { id: experiment.id },
    el("h2", {}, experiment.title, experiment.folder === experiment.name ? null : el("small", {}, ` ${experiment.folder}`)),
    experiment.damage.map((line) => note(line, true)),
    experiment.tables.length || experiment.damage.length ? null : note("There are no cells here yet."),
    experiment.provenance ? provenance(experiment.provenance) : null,
    (experiment.preface || []).map((line) => el("p", {}, words(line))),
    labels.map((label) => tableBlock(experiment, experiment.tables.filter((table) => table.table === label))),
  );
}

function provenance(about) {
  const calls = about.made.map((call) => el("li", {}, el("code", {}, call.command || ""), " ",
    el("small", {}, ["tenuto", "commit", "date", "machine", "jax"].filter((name) => call[name])
      .map((name) => `${name} ${call[name]}`).join(", "))));
  return el("details", {}, el("summary", {}, "Where these numbers come from"),
    facts([
      ["settings", about.settings.join(", ")],
      ["seeds", about.seeds.join(" or ")],
      ["time of all cells", `${count(about.seconds)} s`],
    ]),
    calls.length ? el("ul", {}, calls) : null);
}

// A table in one or several settings

function tableBlock(experiment, variants) {
  const first = variants[0];
  const place = el("div", {});
  const show = (table) => place.replaceChildren(...tableViews(experiment, table));
  const buttons = variants.map((table, i) => el("button", { type: "button", "aria-pressed": String(i === 0), onclick: () => {
    buttons.forEach((other) => other.setAttribute("aria-pressed", String(other === buttons[i])));
    show(table);
  } }, table.setting));
  const published = first.cells.some((cell) => cell.published !== null) || first.missing.length > 0;
  return lazy(first.title, published, () => {
    show(first);
    return [
      buttons.length < 2 ? el("p", { class: "quiet" }, "setting ", el("code", {}, first.setting))
        : el("div", { class: "controls", role: "group", "aria-label": "Setting" }, el("span", { class: "quiet" }, "setting"), buttons),
      place,
    ];
  }, { class: "table-block", "data-table": first.table });
}

// A part that is drawn when it is opened.
function lazy(title, open, content, attributes = {}) {
  const block = el("details", attributes, el("summary", {}, el("span", { class: "title" }, title)));
  let empty = true;
  const fill = () => {
    if (empty) block.append(...content().filter(Boolean));
    empty = false;
  };
  block.fill = fill;
  block.addEventListener("toggle", () => { if (block.open) fill(); });
  if (open) {
    fill();
    block.open = true;
  }
  return block;
}

function tableViews(experiment, table) {
  const axes = axesOf(table);
  return [
    el("p", { class: "quiet" }, words(table.caption)),
    points(table, axes),
    cellTable(table),
    curveViews(experiment, table, axes),
    lengthViews(experiment, table, axes),
    statisticViews(table),
  ].filter(Boolean);
}

function taskName(table, task) {
  return `${table.tasks || ""}${task}`;
}

// Which names are agents and which are tasks, and the cell of both.
function axesOf(table) {
  const cells = new Map(table.cells.map((cell) => [JSON.stringify([cell.row, cell.column]), cell]));
  const byPlace = (row, column) => cells.get(JSON.stringify([row, column]));
  const [agents, tasks] = table.agents_in_rows ? [table.rows, table.columns] : [table.columns, table.rows];
  const at = (agent, task) => (table.agents_in_rows ? byPlace(agent, task) : byPlace(task, agent));
  return { agents, tasks, at, byPlace };
}

function points(table, { agents, tasks, at }) {
  const shown = tasks.slice(0, MOST_PANELS).map((task) => {
    const mine = agents.map((agent, index) => [agent, index, at(agent, task)]).filter(([, , cell]) => cell && cell.mean !== null);
    return mine.length && pointChart({
      title: taskName(table, task),
      label: `${table.title}: ${task}`,
      domain: table.comparable ? [0, 1] : undefined,
      points: mine.map(([name, index, cell]) => ({
        name, index, value: cell.mean, low: cell.low, high: cell.high, published: cell.published,
      })),
      xLabel: null,
    });
  }).filter(Boolean);
  const more = tasks.length > MOST_PANELS ? el("p", { class: "quiet" }, `The first ${MOST_PANELS} of ${tasks.length} are drawn.`) : null;
  return el("div", {}, el("div", { class: "panels" }, shown), more,
    el("p", { class: "quiet" }, "A point is our mean, its line the 95% interval, a diamond the published value."));
}

function cellTable(table) {
  const { byPlace } = axesOf(table);
  const columnName = (name) => (table.agents_in_rows && name ? taskName(table, name) : name);
  const rowName = (name) => (table.agents_in_rows ? name : taskName(table, name));
  const missing = new Map(table.missing.map((cell) => [JSON.stringify([cell.row, cell.column]), cell.published]));
  const body = table.rows.map((row) => {
    const digits = digitsFor(table.columns.map((column) => byPlace(row, column)?.mean));
    return el("tr", {}, el("th", { scope: "row" }, rowName(row)), table.columns.map((column) => {
      const lacking = missing.get(JSON.stringify([row, column]));
      return lacking === undefined ? cellView(byPlace(row, column), digits) : el("td", {},
        el("span", { class: "missing" }, "not run"), el("small", {}, `published ${spell(lacking, digits)}`));
    }));
  });
  return el("div", { class: "wide", tabindex: "0", role: "region", "aria-label": table.title },
    el("table", { class: "cells" },
      el("thead", {}, el("tr", {}, ["", ...table.columns].map((name) => el("th", { scope: "col" }, columnName(name))))),
      el("tbody", {}, body)));
}

function cellView(cell, digits) {
  if (!cell) return el("td", {});
  const spread = cell.published_sd === null || cell.published_sd === undefined ? "" : ` ± ${spell(cell.published_sd, digits)}`;
  return el("td", { title: `${cell.seeds} seeds, ${count(cell.steps)} steps each, sd ${spell(cell.sd, digits)}` },
    el("span", { class: "ours" }, spellInterval(cell.mean, cell.low, cell.high, digits)),
    cell.published === null ? null : el("small", {}, `published ${spell(cell.published, digits)}${spread} `,
      cell.mark ? el("span", { class: cell.mark }, MARKS[cell.mark]) : null));
}

// Learning curves

function curveViews(experiment, table, { agents, tasks }) {
  const kept = new Map(experiment.curves.filter((each) => each.setting === table.setting)
    .map((each) => [JSON.stringify([each.row, each.column]), each]));
  const curveOf = (agent, task) => kept.get(JSON.stringify(table.agents_in_rows ? [agent, task] : [task, agent]));
  const drawn = tasks.filter((task) => agents.some((agent) => curveOf(agent, task)));
  if (!drawn.length) return null;
  return lazy("Learning curves", false, () => {
    const { input, label } = choice("every seed", "checkbox", { class: "every-seed" });
    const charts = drawn.map((task) => {
      const mine = agents.map((name, index) => ({ name, index, curve: curveOf(name, task) })).filter((each) => each.curve);
      const { unit, evaluated } = mine[0].curve;
      return lineChart({
        title: taskName(table, task),
        label: `Learning curves, ${task}`,
        series: mine.map(({ name, index, curve }) => ({ name, index, ...curve })),
        xLabel: unit,
        yLabel: evaluated ? "return, evaluated" : "return in training",
        shows: () => input.checked,
      });
    });
    input.addEventListener("change", () => charts.forEach((each) => each.redraw()));
    return [el("div", { class: "controls" }, label), legend(agents), el("div", { class: "panels" }, charts),
      el("p", { class: "quiet" }, "A line is the mean over seeds, its band the 95% bootstrap interval.")];
  });
}

// How long actions are held, beside what they earn

function lengthViews(experiment, table, axes) {
  const other = experiment.tables.find((each) => each.table === table.lengths && each.setting === table.setting);
  if (!other) return null;
  const { byPlace } = axesOf(other);
  const lengthOf = (agent, task) => (table.agents_in_rows ? byPlace(agent, task) : byPlace(task, agent));
  const perTask = axes.tasks.map((task) => [task, axes.agents.map((name, index) => {
    const [score, length] = [axes.at(name, task), lengthOf(name, task)];
    return score && length && score.mean !== null && length.mean !== null ? { name, index, x: length.mean, y: score.mean } : null;
  }).filter(Boolean)]).filter(([, dots]) => dots.length);
  if (!perTask.length) return null;
  return lazy("How long actions are held, beside the return", false, () => [
    el("p", { class: "quiet" }, other.title),
    el("div", { class: "panels" }, perTask.map(([task, dots]) => chart({ title: taskName(table, task) }, () => ({
      height: 220, marginLeft: 52, grid: true, inset: 14, color: { type: "identity" },
      ariaLabel: `Return and ${other.title}: ${task}`,
      x: { label: other.title.includes("per decision") ? "steps per decision" : "decisions per episode", ticks: 4 },
      y: { label: "return", ticks: 5 },
      marks: [
        Plot.dot(dots, { x: "x", y: "y", r: 5, fill: (d) => colourOf(d.index) }),
        ...[[left, "start"], [right, "end"]].map(([side, textAnchor]) => Plot.text(dots.filter((d) => side(d, dots)), {
          x: "x", y: "y", text: "name", textAnchor, dy: -11,
        })),
      ],
    })))),
  ]);
}

// Names begin at dots on the left and end at those on the right: so they stay inside.
function left(dot, dots) {
  return dot.x <= d3.mean(d3.extent(dots, (d) => d.x));
}

function right(dot, dots) {
  return !left(dot, dots);
}

// Statistics over tasks

function statisticViews(table) {
  const found = table.statistics;
  if (!found) return null;
  const point = (name, i, [value, low, high]) => ({ name, index: table.agents_in_rows ? table.rows.indexOf(name) : table.columns.indexOf(name), value, low, high });
  const rivals = found.hero ? found.agents.map((name, i) => [name, i]).filter(([name]) => name !== found.hero) : [];
  return lazy(`Over tasks that agents share: ${found.tasks.map((task) => taskName(table, task)).join(", ")}`, false, () => [
    found.scaled ? el("p", {}, "Scores are scaled in each task: 0 is the worst mean shown here, 1 the best.") : null,
    el("div", { class: "panels" },
      pointChart({ title: "Interquartile mean", caption: "Of all seeds and tasks, with its 95% interval", points: found.agents.map((name, i) => point(name, i, found.iqm[i])) }),
      rivals.length ? pointChart({
        title: "Probability of improvement",
        caption: `That a seed of ${found.hero} is better than one of the agent named; 0.5: neither`,
        points: rivals.map(([name, i]) => point(name, i, found.improvement[i])), domain: [0, 1],
      }) : null,
      profileChart(table, found)),
    rivals.length ? pairedTable(table, found, rivals) : null,
  ]);
}

function profileChart(table, found) {
  const names = table.agents_in_rows ? table.rows : table.columns;
  return lineChart({
    title: "Performance profiles",
    caption: "The share of seeds with a score above each level, mean over tasks",
    series: Object.entries(found.profile.lines).map(([name, [y, low, high]]) => ({
      name, index: names.indexOf(name), x: found.profile.levels, y, low, high,
    })),
    xLabel: "score", yLabel: "share of seeds",
  });
}

function pairedTable(table, found, rivals) {
  const rows = Object.entries(found.paired).map(([task, differences]) => {
    const digits = digitsFor(differences.filter(Boolean).flat());
    return el("tr", {}, el("th", { scope: "row" }, taskName(table, task)), rivals.map(([, i]) => el("td", {},
      differences[i] ? spellInterval(...differences[i], digits) : "")));
  });
  return el("div", { class: "wide", tabindex: "0", role: "region", "aria-label": "Differences seed by seed" },
    el("table", {}, el("caption", {}, `${found.hero} minus the agent named, seed by seed: mean and 95% interval`),
      el("thead", {}, el("tr", {}, ["", ...rivals.map(([name]) => name)].map((name) => el("th", { scope: "col" }, name)))),
      el("tbody", {}, rows)));
}

// Findings beyond the tables

function findingsSection() {
  if (!DATA.findings.length) return null;
  return el("section", { id: "findings" }, el("h2", {}, "Findings"),
    DATA.findings.map((each) => [
      each.damage.map((line) => note(line, true)),
      each.findings.map((finding) => el("article", {},
        el("h3", {}, finding.claim),
        finding.command ? el("p", {}, el("code", {}, finding.command)) : null,
        finding.page ? el("p", { class: "quiet" }, finding.page) : null,
        finding.evidence.map((file) => el("details", {}, el("summary", {}, file.file),
          el("pre", {}, file.text + (file.whole ? "" : " …")))))),
    ]));
}

report();
