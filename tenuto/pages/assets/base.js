// What all pages share: the data, elements made of text, numbers as words, and charts by Observable Plot.
"use strict";

const DATA = JSON.parse(document.getElementById("data").textContent);
const SERIES = 8; // colours; beyond these they come again, dashed

// Elements. Children are nodes or text; text is never read as markup.

function el(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value === true) made.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) made.setAttribute(name, value);
  }
  made.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== ""));
  return made;
}

// The page's bar: its title and a button for light and dark.
function topBar(title) {
  const dark = () => getComputedStyle(document.documentElement).colorScheme === "dark" ||
    (!document.documentElement.dataset.theme && matchMedia("(prefers-color-scheme: dark)").matches);
  const button = el("button", { type: "button", id: "theme", onclick: () => {
    document.documentElement.dataset.theme = dark() ? "light" : "dark";
    button.textContent = dark() ? "Light" : "Dark";
  } }, dark() ? "Light" : "Dark");
  return el("header", { class: "top" }, el("h1", {}, title), button);
}

function note(text, bad = false) {
  return el("p", { class: bad ? "note bad" : "note" }, text);
}

// Text in which `code` stands between backticks.
function words(text) {
  return text.split("`").map((part, i) => (i % 2 ? el("code", {}, part) : part));
}

function facts(pairs) {
  const shown = pairs.filter(([, value]) => value !== null && value !== undefined && value !== "");
  return el("dl", { class: "facts" }, shown.map(([name, value]) => [el("dt", {}, name), el("dd", {}, value)]));
}

let named = 0;
function choice(label, kind, attributes = {}) {
  const id = `control-${++named}`;
  const input = el("input", { type: kind, id, ...attributes });
  return { input, label: el("label", { for: id }, ...(kind === "range" ? [label, input] : [input, label])) };
}

// Numbers

function spell(number, digits = 3) {
  if (number === null || number === undefined) return "–";
  return number.toFixed(digits).replace(/^-(?=0(\.0*)?$)/, "").replace("-", "−");
}

function digitsFor(numbers) {
  const largest = Math.max(0, ...numbers.filter((x) => x !== null && x !== undefined).map(Math.abs));
  return largest >= 10 ? 1 : 3;
}

function count(number) {
  return number.toLocaleString("en");
}

function spellInterval(value, low, high, digits) {
  const alone = low === null || low === undefined;
  return spell(value, digits) + (alone ? "" : ` [${spell(low, digits)}, ${spell(high, digits)}]`);
}

// Ticks: thousands as k, small numbers as they are.
function compact(number) {
  return Math.abs(number) >= 1000 ? d3.format("~s")(number) : d3.format("~g")(number).replace("-", "−");
}

function mean(values) {
  return values.reduce((sum, x) => sum + x, 0) / values.length;
}

// Charts. Each is drawn again when its width changes.

function colourOf(index) {
  return `var(--series-${index % SERIES})`;
}

function legend(names, active = null) {
  return el("ul", { class: "legend" }, names.map((name, index) => {
    const line = el("i", {});
    line.style.borderColor = colourOf(index);
    if (index >= SERIES) line.style.borderTopStyle = "dashed";
    return el("li", {}, line, name);
  }));
}

function chart({ title, caption }, options) {
  const place = el("div", { class: "chart" });
  const figure = el("figure", {}, title ? el("h4", {}, title) : null, place, caption ? el("figcaption", {}, caption) : null);
  let width = 0;
  const draw = (again = false) => {
    const now = Math.max(240, Math.floor(place.clientWidth || 640));
    if (now === width && !again) return;
    width = now;
    place.replaceChildren(Plot.plot({
      width,
      style: { background: "transparent", color: "inherit", fontSize: "12px", fontFamily: "inherit" },
      ...options(width),
    }));
  };
  new ResizeObserver(() => draw()).observe(place);
  figure.redraw = () => draw(true);
  return figure;
}

// The domain of lines that never move: else their axis has a single tick.
function roomy(series) {
  const numbers = series.flatMap((s) => [s.y, s.low || [], s.high || []].flat()).filter((y) => y !== null);
  const [low, high] = d3.extent(numbers);
  return low === high && low !== undefined ? [low - 0.1 * (Math.abs(low) || 1), high + 0.1 * (Math.abs(high) || 1)] : undefined;
}

// Lines with bands: series are {name, index, x, y, low, high, seeds}; seeds are drawn where `shows()` says so.
function lineChart({ title, caption, series, xLabel, yLabel, shows = () => false, yDomain, percent = false, label }) {
  const rows = (s, y) => s.x.map((x, i) => ({ x, y: y[i], name: s.name })).filter((d) => d.y !== null);
  const bands = (s) => s.x.map((x, i) => ({ x, low: s.low[i], high: s.high[i] })).filter((d) => d.low !== null);
  return chart({ title, caption }, () => ({
    height: 240,
    marginLeft: 52,
    ariaLabel: label || title || caption,
    x: { label: xLabel, tickFormat: compact, ticks: 5 },
    y: { label: yLabel, grid: true, domain: yDomain || roomy(series), ticks: 5, percent, tickFormat: percent ? undefined : compact },
    marks: series.flatMap((s) => {
      const look = { stroke: colourOf(s.index), strokeDasharray: s.index >= SERIES ? "5 3" : null };
      const each = shows() && s.seeds
        ? s.seeds.map((seed) => Plot.line(rows(s, seed), { x: "x", y: "y", ...look, strokeWidth: 0.7, strokeOpacity: 0.35 }))
        : [];
      const band = s.low ? [Plot.areaY(bands(s), { x: "x", y1: "low", y2: "high", fill: colourOf(s.index), fillOpacity: 0.16 })] : [];
      const dots = s.x.length === 1 ? [Plot.dot(rows(s, s.y), { x: "x", y: "y", ...look })] : [];
      return [...band, ...each, Plot.line(rows(s, s.y), { x: "x", y: "y", ...look, strokeWidth: 2 }), ...dots];
    }).concat(Plot.tip(series.flatMap((s) => rows(s, s.y)), Plot.pointer({
      x: "x", y: "y", title: (d) => `${d.name}\n${xLabel}: ${count(d.x)}\n${yLabel}: ${spell(d.y, digitsFor([d.y]))}`,
      fill: "var(--card)",
    }))),
  }));
}

// Points with intervals, a row for each of {name, index, value, low, high, published}.
function pointChart({ title, caption, points, label, xLabel, domain }) {
  const left = (width) => Math.min(200, width * 0.4, 20 + 7 * Math.max(...points.map((p) => p.name.length)));
  return chart({ title, caption }, (width) => ({
    height: 46 + 22 * points.length,
    marginLeft: left(width),
    ariaLabel: label || title || caption,
    x: { label: xLabel, grid: true, domain, inset: 6, ticks: Math.min(8, (width - left(width)) / 60), tickFormat: compact },
    y: { label: null, inset: 4, domain: points.map((p) => p.name) },
    marks: [
      Plot.ruleY(points.filter((p) => p.low !== null && p.low !== undefined), {
        y: "name", x1: "low", x2: "high", stroke: (p) => colourOf(p.index), strokeWidth: 2.5,
      }),
      Plot.dot(points.filter((p) => p.value !== null), { y: "name", x: "value", fill: (p) => colourOf(p.index), r: 4 }),
      Plot.dot(points.filter((p) => p.published !== null && p.published !== undefined), {
        y: "name", x: "published", stroke: "currentColor", symbol: "diamond", r: 5, fill: "none", strokeWidth: 1.5,
      }),
    ],
    color: { type: "identity" },
  }));
}
