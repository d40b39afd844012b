// The inspector: what trained agents value, state by state, and what follows from it for any λ.
"use strict";

const ARROWS = { left: "←", up: "↑", right: "→", down: "↓" };
const FASTEST = 250; // milliseconds between two steps that are played
const SWEEP = d3.range(-3, 3.01, 0.25); // values of λ in charts
const COLOURS = {
  length: { title: "length decided", of: ({ length }) => length },
  spread: { title: "spread at that length", of: ({ spreads, best }) => (best < 0 ? null : spreads[best]) },
  value: { title: "mean value at that length", of: ({ means, best }) => (best < 0 ? null : means[best]) },
};

const subjects = DATA.subjects.map((each, index) => ({
  ...each,
  index,
  title: `${each.name}, ${each.lane}`,
  layout: each.map === null ? null : DATA.maps[each.map],
  table: each.map === null ? null : new Values(each),
  exactValues: numbers(each.exact),
  episode: each.film && { ...each.film, table: new Values(each.film) },
}));

// What is looked at, in all panels alike.
const now = { lam: subjects[0].lam, share: 1, colour: "length", state: null, step: 0, shown: [0, subjects.length > 1 ? 1 : null] };
const views = []; // functions that draw themselves again
const redraw = () => views.forEach((view) => view());

function snapshotOf(subject) {
  return subject.table ? Math.round(now.share * (subject.table.snapshots - 1)) : 0;
}

function inspector() {
  document.body.append(topBar(DATA.title), controls(), el("main", {}, el("div", { class: "sides" }, now.shown.map(panel)),
    el("footer", {}, explained(), el("p", { class: "quiet" }, DATA.made))));
  redraw();
}

function explained() {
  return el("p", { class: "quiet" }, "Every dot is what one head says holding the action for that many steps is worth. " +
    "The length decided is the one with the greatest mean + λ·spread: λ above 0 prefers lengths that the heads disagree on, " +
    "λ below 0 avoids them. On a map, a dot stands where the agent decided, a line where it held its action. Arrow keys move from state to state.");
}

// Controls

function controls() {
  const lam = choice("λ", "range", { min: -3, max: 3, step: 0.05, value: now.lam, class: "lam" });
  const said = el("output", { class: "lam-said" });
  const trained = el("button", { type: "button", class: "as-trained", onclick: () => move(subjects[now.shown[0]].lam) }, "as trained");
  const move = (value) => {
    now.lam = Number(value);
    lam.input.value = now.lam;
    redraw();
  };
  lam.input.addEventListener("input", () => move(lam.input.value));
  views.push(() => { said.textContent = spell(now.lam, 2); });
  const usesLam = subjects.some((each) => each.uses_lam);
  return el("div", { class: "controls bar-of-controls", role: "group", "aria-label": "What is shown" },
    usesLam ? [lam.label, said, trained] : null, snapshotControl(), colourControl());
}

function snapshotControl() {
  const most = Math.max(...subjects.map((each) => (each.table ? each.table.snapshots : 1)));
  if (most < 2) return null;
  const { input, label } = choice("training", "range", { min: 0, max: most - 1, step: 1, value: most - 1, class: "snapshot" });
  const said = el("output", { class: "snapshot-said" });
  input.addEventListener("input", () => {
    now.share = Number(input.value) / (most - 1);
    redraw();
  });
  views.push(() => {
    const subject = subjects[now.shown[0]];
    said.textContent = subject.table ? `after ${count(subject.times[snapshotOf(subject)])} steps` : "";
  });
  return [label, said];
}

function colourControl() {
  if (!subjects.some((each) => each.table)) return null;
  const select = el("select", { class: "colour", onchange: () => {
    now.colour = select.value;
    redraw();
  } }, Object.entries(COLOURS).map(([name, { title }]) => el("option", { value: name }, title)));
  return el("label", {}, "colour", select);
}

// A panel: one agent

function panel(index, side) {
  const place = el("div", {});
  const select = el("select", { "aria-label": side ? "Second agent" : "First agent", class: "agent", onchange: () => {
    now.shown[side] = select.value === "" ? null : Number(select.value);
    fill();
    redraw();
  } }, side ? el("option", { value: "" }, "none") : null,
    subjects.map((each) => el("option", { value: each.index }, `${each.title} (${each.folder})`)));
  select.value = index === null ? "" : index;
  let mine = [];
  const fill = () => {
    mine.forEach((view) => views.splice(views.indexOf(view), 1));
    const before = views.length;
    place.replaceChildren(...(now.shown[side] === null ? [] : contents(subjects[now.shown[side]])));
    mine = views.slice(before);
  };
  fill();
  return el("section", { class: "side", "aria-label": side ? "Second agent" : "First agent" },
    subjects.length > 1 ? el("label", { class: "which" }, select) : el("h2", {}, subjects[0].title), place);
}

function contents(subject) {
  const trained = subject.uses_lam ? `λ of this agent: ${spell(subject.lam, 2)}` : "it uses no λ";
  return [
    el("p", { class: "quiet" }, `${trained}${subject.unit ? `; values are ${subject.unit}` : ""}`),
    ...subject.notes.map((line) => note(line)),
    ...(subject.table ? mapViews(subject) : []),
    ...(subject.episode ? filmViews(subject) : []),
  ].filter(Boolean);
}

// A chart that is drawn again with everything else.
function living(parts, options) {
  const figure = chart(parts, options);
  views.push(() => figure.redraw());
  return figure;
}

// Maps

function mapViews(subject) {
  const certain = Boolean(subject.layout.to);
  return [
    mapView(subject),
    certain ? player(subject, () => walk(subject, subject.layout, snapshotOf(subject), now.lam)) : null,
    headViews(subject, () => subject.table, () => [snapshotOf(subject), selected(subject)], (state) => placeName(subject, state)),
    subject.uses_lam ? sweepChart(subject, certain) : null,
    subject.table.snapshots > 1 ? trainingChart(subject) : null,
  ].filter(Boolean);
}

// The state that is looked at: the one clicked, else the one where the way has come to, else the start.
function selected(subject) {
  if (now.state !== null && now.state < subject.table.states) return now.state;
  return subject.layout.start === undefined ? Math.floor(subject.table.states / 2) : subject.layout.states.indexOf(subject.layout.start);
}

function placeName(subject, state) {
  const { columns, axes, states } = subject.layout;
  const [row, column] = [Math.floor(states[state] / columns), states[state] % columns];
  if (!axes) return subject.layout.kind === "chain" ? `state ${states[state]}` : `row ${row + 1}, column ${column + 1}`;
  const at = (axis, share) => spell(axis.low + share * (axis.high - axis.low), 3);
  return `${axes[0].name} ${at(axes[0], column / (columns - 1))}, ${axes[1].name} ${at(axes[1], 1 - row / (columns - 1))}`;
}

function actionName(subject, action) {
  const names = subject.layout && subject.layout.actions;
  if (names) return names[action];
  return Array.isArray(action) ? `action (${action.map((x) => spell(x, 2)).join(", ")})` : `action ${action}`;
}

const SVG = "http://www.w3.org/2000/svg";
function svg(tag, attributes, ...children) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

const TILE = 48;
function mapView(subject) {
  const { rows, columns, marks, states, axes } = subject.layout;
  const tile = axes ? 20 : TILE;
  const stateAt = new Map(states.map((place, state) => [place, state]));
  const drawing = svg("svg", { viewBox: `0 0 ${columns * tile} ${rows * tile}`, class: "map", role: "group", "aria-label": `Map of ${subject.title}` });
  drawing.style.maxWidth = `${columns * tile}px`;
  const cells = d3.range(rows * columns).map((place) => cellView(place, stateAt.get(place), marks ? marks[place] : ".", tile, columns));
  const way = svg("g", { class: "way", "pointer-events": "none" });
  drawing.append(...cells.map((cell) => cell.node), way);
  drawing.addEventListener("click", (event) => choose(event.target.closest("[data-state]")));
  drawing.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -columns, ArrowDown: columns }[event.key];
    if (step === undefined) return;
    event.preventDefault();
    const beyond = stateAt.get(states[selected(subject)] + step);
    if (beyond !== undefined) choose(drawing.querySelector(`[data-state="${beyond}"]`), true);
  });
  const choose = (cell, focus = false) => {
    if (!cell) return;
    now.state = Number(cell.dataset.state);
    redraw();
    if (focus) cell.focus();
  };
  const scale = el("p", { class: "quiet scale" });
  views.push(() => drawMap(subject, cells, way, scale, tile));
  return el("figure", {}, el("div", { class: axes ? "plane" : "" }, drawing), axesCaption(axes), scale);
}

function axesCaption(axes) {
  if (!axes) return null;
  const [x, y] = axes.map(({ name, low, high }) => `${name} from ${spell(low, 2)} to ${spell(high, 2)}`);
  return el("figcaption", {}, `To the right ${x}; upwards ${y}`);
}

function cellView(place, state, mark, tile, columns) {
  const [x, y] = [(place % columns) * tile, Math.floor(place / columns) * tile];
  const kind = { "#": "lava", G: "goal", S: "start" }[mark] || "ground";
  const box = svg("rect", { x: x + 0.5, y: y + 0.5, width: tile - 1, height: tile - 1, class: `cell ${kind}` });
  const text = svg("text", { x: x + tile / 2, y: y + tile / 2, class: "cell-text" });
  const node = state === undefined ? svg("g", {}, box) : svg("g", { role: "button", "data-state": state, tabindex: -1 }, box, text);
  return { node, box, text, state, kind };
}

function drawMap(subject, cells, way, scale, tile) {
  const snapshot = snapshotOf(subject);
  const found = d3.range(subject.table.states).map((state) => lengthAt(subject, snapshot, state, now.lam));
  const colour = COLOURS[now.colour];
  const numbersShown = found.map(colour.of);
  const [low, high] = now.colour === "length" ? d3.extent(subject.lengths) : d3.extent(numbersShown);
  const share = (x) => (high > low ? (x - low) / (high - low) : 0.5);
  for (const { node, box, text, state, kind } of cells) {
    if (state === undefined) continue;
    const { length } = found[state];
    const tint = numbersShown[state] === null ? null : d3.interpolateBlues(0.08 + 0.82 * share(numbersShown[state]));
    const action = subject.table.action(snapshot, state);
    const name = actionName(subject, action);
    const chosen = state === selected(subject);
    box.style.fill = tint;
    text.style.fill = tint && d3.lab(tint).l < 60 ? "#fff" : "#111";
    text.textContent = tile < TILE ? "" : `${ARROWS[name] || ""}${length}`;
    node.dataset.length = length;
    node.setAttribute("tabindex", chosen ? 0 : -1);
    node.setAttribute("class", chosen ? "chosen" : "");
    node.setAttribute("aria-pressed", chosen);
    node.setAttribute("aria-label", `${placeName(subject, state)}${kind === "start" ? ", start" : ""}: ${name} for ${length}`);
  }
  const last = cells.find((cell) => cell.state === selected(subject));
  last.node.parentNode.insertBefore(last.node, way); // above its neighbours, for its frame
  scale.textContent = `Colour: ${colour.title}, ${spell(low, now.colour === "length" ? 0 : 3)} (light) to ${spell(high, now.colour === "length" ? 0 : 3)} (dark)`;
  way.replaceChildren(...wayOn(subject, tile));
}

// The way through a map so far: a dot where the agent decided, a line where it held its action.
function wayOn(subject, tile) {
  const { columns, axes, rows } = subject.layout;
  let points;
  let dots;
  if (axes) {
    if (!subject.episode || !subject.episode.way) return [];
    const at = (axis, x) => (x - axis.low) / (axis.high - axis.low);
    const all = subject.episode.way.map(([x, y]) => [(at(axes[0], x) * (columns - 1) + 0.5) * tile, ((1 - at(axes[1], y)) * (rows - 1) + 0.5) * tile]);
    const upTo = Math.min(now.step, all.length - 1);
    points = all.slice(0, upTo + 1);
    dots = points.filter((_, i) => subject.episode.done[i] === 1);
  } else {
    const { steps, end } = walk(subject, subject.layout, snapshotOf(subject), now.lam);
    const upTo = Math.min(now.step, steps.length);
    const at = (place) => [(place % columns + 0.5) * tile, (Math.floor(place / columns) + 0.5) * tile];
    points = [...steps.map((step) => at(step.place)), at(end)].slice(0, upTo + 1);
    dots = steps.slice(0, upTo + (upTo < steps.length ? 1 : 0)).filter((step) => step.decided).map((step) => at(step.place));
  }
  const [x, y] = points[points.length - 1];
  return [
    svg("polyline", { points: points.map((p) => p.join(",")).join(" "), class: "held" }),
    ...dots.map(([cx, cy]) => svg("circle", { cx, cy, r: tile / 8, class: "decision" })),
    svg("circle", { cx: x, cy: y, r: tile / 4, class: "agent-now" }),
  ];
}

// Playing: an episode's steps one after the other

function player(subject, episode) {
  const button = el("button", { type: "button", class: "play", onclick: () => (timer ? stop() : start()) }, "Play");
  const { input, label } = choice("step", "range", { min: 0, value: 0, step: 1, class: "step" });
  const said = el("p", { class: "said", "aria-live": "polite" });
  let timer = null;
  const stop = () => {
    clearInterval(timer);
    timer = null;
    button.textContent = "Play";
  };
  const start = () => {
    const end = episode().steps.length;
    if (now.step >= end) now.step = 0;
    button.textContent = "Pause";
    timer = setInterval(() => {
      if (now.step >= episode().steps.length || !button.isConnected) stop();
      else now.step += 1;
      redraw();
    }, FASTEST);
  };
  input.addEventListener("input", () => {
    now.step = Number(input.value);
    redraw();
  });
  views.push(() => {
    const { steps, total, decisions, cut } = episode();
    input.max = steps.length;
    input.value = Math.min(now.step, steps.length);
    const doing = now.step < steps.length ? steps[now.step] : null;
    said.textContent = `Episode: return ${spell(total, 3)}, ${count(steps.length)} steps${cut ? " (cut here)" : ""}, ${count(decisions)} decisions. ` +
      (doing ? `Step ${now.step + 1}: ${actionName(subject, doing.action)}, step ${doing.done} of ${doing.length}` : "It is over.");
  });
  return el("div", { class: "player" }, el("div", { class: "controls" }, button, label), said);
}

// Heads: what each says of each length

function headViews(subject, tableOf, at, name) {
  const title = el("h3", {});
  const found = () => tableOf().scored(at()[0], at()[1], now.lam);
  const truth = () => {
    if (!subject.exactValues || tableOf() !== subject.table) return [];
    const { values, shape: [, actions, lengths] } = subject.exactValues;
    const begin = (at()[1] * actions + tableOf().action(...at())) * lengths;
    return subject.lengths.map((length, i) => ({ length, value: values[begin + i] }));
  };
  if (!tableOf().heads) return note("Of this agent there are no values by length to be shown.");
  const figure = living({ title: "", caption: "Dots: heads. Line: their mean. Band: ± one spread. Dashed: mean + λ·spread. Diamonds: exact values." }, () => {
    const { heads, means, spreads, scores, best } = found();
    const each = means.map((value, i) => ({ length: subject.lengths[i], value, low: value - spreads[i], high: value + spreads[i], score: scores[i] }));
    const dots = heads.flatMap((head) => head.map((value, i) => ({ length: subject.lengths[i], value })));
    return {
      height: 266, marginLeft: 56, marginBottom: 40, ariaLabel: `Option values of ${subject.title}`,
      x: { label: "length", ticks: subject.lengths, tickFormat: "d", inset: 12, labelAnchor: "center" },
      y: { label: "value", grid: true, ticks: 6, tickFormat: compact },
      marks: [
        Plot.ruleX([subject.lengths[best]], { stroke: "var(--focus)", strokeWidth: 12, strokeOpacity: 0.25 }),
        Plot.areaY(each, { x: "length", y1: "low", y2: "high", fill: "var(--series-0)", fillOpacity: 0.15 }),
        Plot.line(each, { x: "length", y: "value", stroke: "var(--series-0)", strokeWidth: 2 }),
        subject.uses_lam ? Plot.line(each, { x: "length", y: "score", stroke: "var(--series-1)", strokeDasharray: "5 3" }) : null,
        Plot.dot(dots, { x: "length", y: "value", r: 2.5, fill: "currentColor", fillOpacity: 0.55 }),
        Plot.dot(truth(), { x: "length", y: "value", symbol: "diamond", r: 5, stroke: "var(--series-2)", strokeWidth: 1.5 }),
      ],
    };
  });
  const body = el("tbody", {});
  views.push(() => {
    const { means, spreads, scores, best } = found();
    const exact = truth();
    title.textContent = `${name(at()[1])}: ${actionName(subject, tableOf().action(...at()))} for ${subject.lengths[best]}`;
    body.replaceChildren(...means.map((value, i) => el("tr", { class: i === best ? "best" : null },
      el("th", { scope: "row" }, String(subject.lengths[i])), [value, spreads[i], scores[i], exact.length ? exact[i].value : null]
        .map((number) => el("td", {}, spell(number, 4))))));
  });
  const head = el("thead", {}, el("tr", {}, ["length", "mean", "spread", "mean + λ·spread", "exact"].map((text) => el("th", { scope: "col" }, text))));
  return el("div", { class: "heads" }, title, figure, el("details", {}, el("summary", {}, "The numbers"),
    el("div", { class: "wide", tabindex: 0, role: "region", "aria-label": `Option values of ${subject.title} as numbers` }, el("table", { class: "numbers" }, head, body))));
}

// What λ and training change

function sweepChart(subject, certain) {
  return living({ title: certain ? "Over λ: an episode from the start" : "Over λ: lengths, mean over states" }, () => {
    const rows = SWEEP.map((lam) => {
      const way = certain ? walk(subject, subject.layout, snapshotOf(subject), lam) : null;
      return { lam, y: way ? way.decisions : average(subject, snapshotOf(subject), lam).length, total: way ? way.total : null };
    });
    return {
      height: 196, marginLeft: 44, marginBottom: 40, ariaLabel: `Over λ: ${subject.title}`,
      x: { label: "λ", ticks: 7, labelAnchor: "center" }, y: { label: certain ? "decisions" : "length", grid: true, ticks: 4, zero: certain },
      marks: [
        Plot.line(rows, { x: "lam", y: "y", stroke: "var(--series-0)", strokeWidth: 2, curve: "step" }),
        Plot.dot(rows.filter((row) => row.total !== null), {
          x: "lam", y: "y", r: 3, fill: (row) => (row.total > 0 ? "var(--inside)" : "var(--outside)"),
        }),
        Plot.ruleX([now.lam], { stroke: "var(--focus)", strokeWidth: 2 }),
      ],
      caption: certain ? "Green dots: the return is above 0." : undefined,
      color: { type: "identity" },
    };
  });
}

function trainingChart(subject) {
  const measures = {
    spread: subject.table.heads > 1 ? (k) => average(subject, k, now.lam).spread : null,
    error: subject.exactValues ? (k) => averageError(subject, k, now.lam) : null,
  };
  const drawn = Object.entries(measures).filter(([, measure]) => measure);
  if (!drawn.length) return null;
  const figure = living({ title: "Over training: mean over states, for the option decided" }, () => {
    const rows = drawn.map(([, measure]) => subject.times.map((t, k) => ({ t, y: measure(k) })));
    return {
      height: 196, marginLeft: 56, marginBottom: 40, ariaLabel: `Over training: ${subject.title}`,
      x: { label: "steps", tickFormat: compact, ticks: 5, labelAnchor: "center" }, y: { label: drawn.map(([name]) => name).join(", "), grid: true, ticks: 4, zero: true },
      marks: [
        ...rows.map((each, i) => Plot.line(each, { x: "t", y: "y", stroke: colourOf(i), strokeWidth: 2 })),
        Plot.ruleX([subject.times[snapshotOf(subject)]], { stroke: "var(--focus)", strokeWidth: 2 }),
      ],
    };
  });
  return el("div", {}, figure, legend(drawn.map(([name]) => (name === "error" ? "distance of the mean from the exact value" : name))));
}

// Episodes that were recorded

function filmViews(subject) {
  const { lengths, done, rewards, taken, cut, pictures } = subject.episode;
  const steps = lengths.map((length, i) => ({ length, done: done[i], decided: done[i] === 1, action: subject.episode.actions[0][i], taken: taken[i] }));
  const whole = { steps, total: d3.sum(rewards), decisions: steps.filter((step) => step.decided).length, cut };
  const step = () => Math.min(now.step, steps.length - 1);
  const picture = pictures.length ? el("img", { class: "picture", alt: "The environment at this step" }) : null;
  if (picture) views.push(() => { picture.src = pictures[Math.min(now.step, pictures.length - 1)]; });
  return [
    picture ? el("figure", {}, picture) : null,
    strip(subject, steps),
    player(subject, () => whole),
    subject.table ? null : headViews(subject, () => subject.episode.table, () => [0, step()], (at) => `If it decided at step ${at + 1}`),
    spreadChart(subject, steps),
  ].filter(Boolean);
}

// The options of an episode: a block for each, as wide as it was held, darker the longer it was to be held.
function strip(subject, steps) {
  const high = Math.max(...subject.lengths);
  const drawing = svg("svg", { viewBox: `0 0 ${steps.length} 12`, preserveAspectRatio: "none", class: "strip", role: "img", "aria-label": "Options of the episode" });
  const marker = svg("rect", { y: 0, width: Math.max(1, steps.length / 300), height: 12, class: "strip-now" });
  drawing.append(...steps.map(({ length, decided }, i) => svg("rect", {
    x: i + (decided ? 0.12 : 0), y: 1, width: decided ? 0.88 : 1, height: 10, fill: d3.interpolateBlues(0.2 + 0.75 * (length / high)),
  })), marker);
  drawing.addEventListener("click", (event) => {
    const box = drawing.getBoundingClientRect();
    now.step = Math.floor(((event.clientX - box.left) / box.width) * steps.length);
    redraw();
  });
  views.push(() => marker.setAttribute("x", Math.min(now.step, steps.length - 1)));
  return drawing;
}

function spreadChart(subject, steps) {
  if (subject.episode.table.heads < 2) return null;
  return living({ title: "Through the episode: spread of the option that would be decided" }, () => {
    const each = steps.map((_, i) => ({ i, spread: COLOURS.spread.of(lengthAt({ ...subject, table: subject.episode.table }, 0, i, now.lam)) }));
    return {
      height: 160, marginLeft: 56, ariaLabel: `Spread through the episode: ${subject.title}`,
      x: { label: "step", ticks: 6 }, y: { label: "spread", grid: true, ticks: 4, zero: true },
      marks: [Plot.line(each, { x: "i", y: "spread", stroke: "var(--series-0)" }), Plot.ruleX([now.step], { stroke: "var(--focus)", strokeWidth: 2 })],
    };
  });
}

inspector();
