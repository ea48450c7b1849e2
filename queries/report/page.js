"use strict";
// All names come from the profiled model: they are set as text, and escaped for plotly, which
// would read some tags in labels.
const data = JSON.parse(document.getElementById("data").textContent);
const byId = (id) => document.getElementById(id);
const plain = (text) => String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");

const COLORS = {
  parameter: "#4269d0", buffer: "#8fb3f5", input: "#9aa3b2", activation: "#efb118",
  temporary: "#ff8a5c", gradient: "#3ca951", optimizer: "#a463f2",
};
const SERIES = ["#4269d0", "#efb118", "#3ca951", "#ff725c", "#a463f2", "#6cc5b0", "#ff8ab7", "#97bbf5", "#9c6b4e"];
const REST = "#9aa3b2";

function scaled(value, units, step) {
  let i = 0;
  while (Math.abs(value) >= step && i < units.length - 1) { value /= step; i += 1; }
  const digits = i === 0 ? 0 : value >= 100 ? 0 : value >= 10 ? 1 : 2;
  return `${value.toFixed(digits)} ${units[i]}`.trim();
}
const bytes = (n) => scaled(n, ["B", "KiB", "MiB", "GiB", "TiB"], 1024);
const flops = (n) => scaled(n, ["FLOP", "kFLOP", "MFLOP", "GFLOP", "TFLOP", "PFLOP"], 1000);
const micros = (n) => (n < 1000 ? `${n.toFixed(1)} µs` : `${(n / 1000).toFixed(2)} ms`);
const whole = (n) => n.toLocaleString("en");

function make(tag, text, className) {
  const element = document.createElement(tag);
  if (text !== undefined) element.textContent = text;
  if (className) element.className = className;
  return element;
}

// ---- tables -------------------------------------------------------------------------------

// columns: [title, how to show a value, or null for text]
function table(place, columns, rows) {
  const element = make("table");
  const head = element.createTHead().insertRow();
  const body = element.createTBody();
  let order = rows.map((_, i) => i);
  const fill = () => {
    body.replaceChildren(...order.map((i) => {
      const line = make("tr");
      columns.forEach(([, show], c) => {
        const cell = make("td", show ? show(rows[i][c]) : rows[i][c], show ? "" : "text");
        cell.title = String(rows[i][c]);
        line.append(cell);
      });
      return line;
    }));
  };
  columns.forEach(([title, show], c) => {
    const cell = make("th", title, show ? "" : "text");
    cell.scope = "col";
    cell.tabIndex = 0;
    const sort = () => {
      const up = cell.getAttribute("aria-sort") === (show ? "descending" : null) ||
        (!show && cell.getAttribute("aria-sort") === "descending");
      for (const other of head.cells) other.removeAttribute("aria-sort");
      cell.setAttribute("aria-sort", up ? "ascending" : "descending");
      const sign = up ? 1 : -1;
      order = rows.map((_, i) => i).sort((a, b) => {
        const [x, y] = [rows[a][c], rows[b][c]];
        const less = typeof x === "string" ? x.localeCompare(y, "en", { numeric: true }) : x - y;
        return sign * less || a - b;
      });
      fill();
    };
    cell.addEventListener("click", sort);
    cell.addEventListener("keydown", (event) => {
      if (event.key === "Enter" || event.key === " ") { event.preventDefault(); sort(); }
    });
    head.append(cell);
  });
  fill();
  byId(place).replaceChildren(element);
}

// ---- charts -------------------------------------------------------------------------------

const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const CONFIG = { responsive: true, displaylogo: false, modeBarButtonsToRemove: ["select2d", "lasso2d"] };

// black or white, whichever stands out more from a colour (WCAG 2, relative luminance)
function readable(color) {
  const [r, g, b] = [1, 3, 5].map((i) => parseInt(color.slice(i, i + 2), 16) / 255)
    .map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4));
  const luminance = 0.2126 * r + 0.7152 * g + 0.0722 * b;
  return (luminance + 0.05) / 0.05 > 1.05 / (luminance + 0.05) ? "#000000" : "#ffffff";
}

function layout(more) {
  const axis = { gridcolor: style("--line"), zerolinecolor: style("--line"), linecolor: style("--line"), automargin: true };
  const { xaxis, yaxis, ...rest } = more;
  return {
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
    font: { family: getComputedStyle(document.body).fontFamily, size: 12, color: style("--ink") },
    margin: { l: 60, r: 16, t: 28, b: 44 },
    hoverlabel: { bgcolor: style("--card"), bordercolor: style("--line"), font: { color: style("--ink") }, align: "left" },
    modebar: { bgcolor: "rgba(0,0,0,0)", color: style("--soft"), activecolor: style("--accent") },
    legend: { orientation: "h", y: 1.02, yanchor: "bottom", x: 0 },
    xaxis: { ...axis, ...xaxis }, yaxis: { ...axis, ...yaxis }, ...rest,
  };
}

function byteTicks(highest) {
  const step = 2 ** Math.max(0, Math.ceil(Math.log2(highest / 6 || 1)));
  const ticks = [];
  for (let value = 0; value <= highest * 1.1; value += step) ticks.push(value);
  return { tickvals: ticks, ticktext: ticks.map(bytes) };
}

function drawMemory() {
  const memory = data.memory;
  const traces = Object.entries(memory.classes).map(([name, sizes]) => ({
    name, x: memory.steps, y: sizes, stackgroup: "live", mode: "lines", hoverinfo: "none",
    line: { shape: "hv", width: 0, color: COLORS[name] }, fillcolor: COLORS[name],
  }));
  traces.push({
    name: "lower bound by last use", x: memory.steps, y: memory.bound, mode: "lines", hoverinfo: "none",
    line: { shape: "hv", width: 1.2, color: style("--ink"), dash: "dot" },
  });
  traces.push({
    name: "live", x: memory.steps, y: memory.live, mode: "lines", showlegend: false,
    line: { shape: "hv", width: 0, color: style("--ink") },
    text: memory.live.map(bytes), hovertemplate: "%{text} at step %{x}<extra></extra>",
  });
  const last = memory.steps.length ? memory.steps[memory.steps.length - 1] : 1;
  const shapes = memory.phase_starts.slice(1).map(([start]) => ({
    type: "line", x0: start, x1: start, yref: "paper", y0: 0, y1: 1,
    line: { color: style("--soft"), width: 1, dash: "dash" },
  }));
  const annotations = memory.phase_starts.map(([start, phase]) => ({
    x: start, y: 1, yref: "paper", text: phase, showarrow: false, xanchor: "left", yanchor: "top",
    xshift: 4, font: { color: style("--soft"), size: 12 },
  }));
  annotations.push({
    x: memory.peak_step, y: memory.peak_bytes, text: `peak ${bytes(memory.peak_bytes)}`,
    arrowhead: 2, arrowcolor: style("--ink"), ax: 0, ay: -24, font: { color: style("--ink"), size: 13 },
  });
  Plotly.react("memory", traces, layout({
    hovermode: "x", shapes, annotations,
    xaxis: { title: { text: "step (operator)" }, range: [0, last], showspikes: true, spikemode: "across", spikethickness: 1, spikedash: "solid", spikecolor: style("--soft") },
    yaxis: { range: [0, memory.peak_bytes * 1.3], ...byteTicks(memory.peak_bytes * 1.1) },
  }), CONFIG);
}

function showAlive(index) {
  const memory = data.memory;
  const step = memory.steps[index];
  const live = memory.storages.filter((s) => s[3] <= step && step <= s[4]).sort((a, b) => b[2] - a[2]);
  const list = make("ol");
  for (const [name, kind, size, , , waits] of live.slice(0, 13)) {
    const line = make("li");
    const mark = make("i");
    mark.style.background = COLORS[kind];
    const label = make("span", name);
    label.title = `${name}: ${kind}${waits ? `, until ${waits}` : ""}`;
    line.append(mark, label, make("b", bytes(size)));
    list.append(line);
  }
  const more = live.slice(13).reduce((sum, s) => sum + s[2], 0);
  byId("alive").replaceChildren(
    make("h3", `${bytes(memory.live[index])} alive at step ${whole(step)}`),
    make("p", `${memory.operator[index]}${memory.call[index] ? ` in ${memory.call[index]}` : ""}, ${memory.phase[index]}`),
    list,
    make("p", live.length > 13 ? `and ${whole(live.length - 13)} more, ${bytes(more)}` : ""),
  );
}

const MEASURES = [
  ["kept_bytes", "Kept activations", bytes], ["param_bytes", "Parameters", bytes],
  ["fwd_flops", "Forward FLOPs", flops], ["step_flops", "Step FLOPs", flops],
];
let measure = MEASURES[0];

function drawModules() {
  const modules = data.modules;
  const [field, , show] = measure;
  const dark = document.documentElement.dataset.theme === "dark";
  const classes = [...new Set(modules.class_name)];
  const weight = new Map(classes.map((name) => [name, 0]));
  modules.class_name.forEach((name, i) => weight.set(name, weight.get(name) + modules[field][i]));
  // the classes that count most get a colour, containers stay pale
  const parents = new Set(modules.parent);
  const leaves = classes.filter((name) => modules.class_name.some((c, i) => c === name && !parents.has(modules.id[i])));
  leaves.sort((a, b) => weight.get(b) - weight.get(a));
  const color = (name, id) => {
    if (parents.has(id)) return dark ? "#262e3c" : "#e9edf5";
    const rank = leaves.indexOf(name);
    return rank < SERIES.length ? SERIES[rank] : REST;
  };
  const colors = modules.class_name.map((name, i) => color(name, modules.id[i]));
  const font = { color: colors.map(readable) };
  Plotly.react("modules", [{
    type: "treemap", branchvalues: "total", ids: modules.id, parents: modules.parent,
    labels: modules.label.map(plain), values: modules[field],
    customdata: modules.path.map((path, i) => [plain(path), plain(modules.class_name[i]), show(modules[field][i])]),
    texttemplate: "%{label}<br>%{customdata[2]}",
    hovertemplate: "<b>%{customdata[0]}</b><br>%{customdata[1]}<br>%{customdata[2]} (%{percentRoot} of the model)<extra></extra>",
    textfont: font, outsidetextfont: font, // the latter is the root's
    marker: { colors, line: { width: 1, color: style("--card") }, pad: { t: 20, l: 3, r: 3, b: 3 } },
    pathbar: { visible: true, thickness: 22 }, tiling: { packing: "squarify" }, maxdepth: 9,
  }], layout({ margin: { l: 0, r: 0, t: 26, b: 0 } }), CONFIG);
}

function drawRoofline() {
  const roof = data.roofline;
  const kinds = new Map();
  for (const call of roof.calls) {
    if (!kinds.has(call[1])) kinds.set(call[1], []);
    kinds.get(call[1]).push(call);
  }
  const time = (calls) => calls.reduce((sum, call) => sum + call[4], 0);
  const longest = Math.max(1e-9, ...roof.calls.map((call) => call[4]));
  const ranked = [...kinds.entries()].sort((a, b) => time(b[1]) - time(a[1]));
  const traces = ranked.map(([kind, calls], rank) => ({
    name: plain(kind), mode: "markers", type: "scatter",
    x: calls.map((c) => c[2] / c[3]), y: calls.map((c) => c[2] / c[4] * 1e6),
    customdata: calls.map((c) => [plain(c[0]), flops(c[2]), bytes(c[3]), micros(c[4])]),
    hovertemplate: "<b>%{customdata[0]}</b><br>%{customdata[1]}, %{customdata[2]}<br>%{customdata[3]}<extra>%{fullData.name}</extra>",
    marker: { color: rank < SERIES.length ? SERIES[rank] : REST, size: calls.map((c) => 5 + 17 * Math.sqrt(c[4] / longest)), opacity: 0.75, line: { width: 0.5, color: style("--card") } },
  }));
  const ridge = roof.peak / roof.bandwidth;
  const reach = roof.calls.map((c) => c[2] / c[3]);
  const low = Math.min(0.05, ...reach) / 1.5;
  const high = Math.max(ridge * 10, ...reach) * 1.5;
  traces.unshift({
    name: "roof", mode: "lines", hoverinfo: "skip", showlegend: false, x: [low, ridge, high],
    y: [low * roof.bandwidth, roof.peak, roof.peak], line: { color: style("--ink"), width: 1.6 },
  });
  Plotly.react("roofline", traces, layout({
    margin: { l: 76, r: 16, t: 40, b: 48 }, hovermode: "closest",
    xaxis: { type: "log", title: { text: "FLOPs per byte" } },
    yaxis: { type: "log", title: { text: "FLOP/s" }, tickformat: "~s" },
    annotations: [{ x: Math.log10(ridge), y: Math.log10(roof.peak), text: `${flops(roof.peak)}/s (${plain(roof.dtype)}), ${(roof.bandwidth / 1e12).toFixed(2)} TB/s`, showarrow: false, yshift: 12, xanchor: "left", font: { color: style("--soft") } }],
  }), CONFIG);
}

function drawHot() {
  const hot = [...data.operators].sort((a, b) => b[5] - a[5]).slice(0, 12).reverse();
  const label = (row) => plain(`${row[0].replace(/^aten\./, "").replace(/\.default$/, "")} (${row[1]})`);
  Plotly.react("hot", [{
    type: "bar", orientation: "h", x: hot.map((row) => row[5] / 1000), y: hot.map(label),
    marker: { color: hot.map((row) => ({ forward: SERIES[0], backward: SERIES[2], recompute: SERIES[4] })[row[1]] || REST) },
    text: hot.map((row) => micros(row[5])), textposition: "outside", cliponaxis: false,
    customdata: hot.map((row) => [flops(row[3]), bytes(row[4]), row[2]]),
    hovertemplate: "%{customdata[2]} calls<br>%{customdata[0]}, %{customdata[1]}<extra></extra>",
  }], layout({ margin: { l: 60, r: 60, t: 32, b: 40 }, xaxis: { title: { text: `estimated ms on ${plain(data.estimate.device)}` } }, yaxis: { ticksuffix: "  " } }), CONFIG);
}

function drawPath() {
  const lanes = [];
  const lane = data.path.bars.map(([, start, width, , onPath]) => {
    if (onPath) return 0;
    let free = 1;
    while (lanes[free] > start + 1e-9) free += 1;
    lanes[free] = start + width;
    return free;
  });
  const trace = (wanted, name, color) => {
    const rows = data.path.bars.map((bar, i) => [bar, lane[i]]).filter(([bar]) => bar[4] === wanted);
    return {
      type: "bar", orientation: "h", name, width: 0.8, base: rows.map(([bar]) => bar[1]), x: rows.map(([bar]) => bar[2]), y: rows.map(([, l]) => l),
      marker: { color, line: { width: data.path.bars.length > 200 ? 0.2 : 0.6, color: style("--card") } },
      customdata: rows.map(([bar]) => [plain(bar[0]), micros(bar[2]), micros(bar[3])]),
      hovertemplate: "<b>%{customdata[0]}</b><br>%{customdata[1]}, slack %{customdata[2]}<extra></extra>",
    };
  };
  Plotly.react("path", [trace(true, "critical path", SERIES[3]), trace(false, "beside it", SERIES[7])], layout({
    barmode: "overlay", margin: { l: 16, r: 16, t: 30, b: 44 },
    xaxis: { title: { text: "earliest start, µs" } },
    yaxis: { autorange: "reversed", showticklabels: false, showgrid: false, zeroline: false },
  }), CONFIG);
}

// ---- page ---------------------------------------------------------------------------------

function drawAll() { drawMemory(); drawModules(); drawRoofline(); drawHot(); drawPath(); }

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  drawAll();
}

function start() {
  const totals = data.totals;
  byId("model").textContent = totals.model;
  byId("configuration").textContent =
    `${totals.zoo} · batch ${totals.batch_size} · ${totals.dtype} · ${totals.mode} · for ${totals.target}`;
  const tiles = [
    [bytes(totals.peak_bytes), "peak memory"], [bytes(totals.kept_bytes), "kept activations"],
    [bytes(totals.param_bytes), `${whole(totals.param_count)} parameters`],
    [flops(totals.fwd_flops), "forward"], [flops(totals.bwd_flops), "backward"],
    [micros(data.estimate.step_us), `a step on ${data.estimate.device}, estimated`],
    [data.path.parallelism.toFixed(2), "parallelism of forward"],
  ];
  if (totals.unknown_op_count) tiles.push([whole(totals.unknown_op_count), "operators without a formula: FLOPs are lower bounds"]);
  byId("tiles").replaceChildren(...tiles.map(([value, label]) => {
    const tile = make("div", undefined, "tile");
    tile.append(make("b", value), make("span", label));
    return tile;
  }));
  byId("measures").replaceChildren(...MEASURES.map((choice) => {
    const button = make("button", choice[1]);
    button.type = "button";
    button.setAttribute("aria-pressed", String(choice === measure));
    button.addEventListener("click", () => {
      measure = choice;
      for (const other of byId("measures").children) other.setAttribute("aria-pressed", String(other === button));
      drawModules();
    });
    return button;
  }));
  byId("roof-device").textContent = `${data.roofline.device}, ${data.roofline.dtype}`;
  byId("path-summary").textContent =
    `${micros(data.path.length)} of ${micros(data.path.total)} of work: parallelism ${data.path.parallelism.toFixed(2)}`;
  byId("footer").textContent =
    `Times are roofline estimates from published peaks (${data.roofline.source}), never measurements.`;

  const live = [["storage", null], ["class", null], ["size", bytes], ["born at step", whole], ["dies after step", whole], ["waits for", null]];
  const operator = [["operator", null], ["phase", null], ["calls", whole], ["FLOPs", flops], ["bytes moved", bytes], ["estimated time", micros]];
  table("operators", totals.unknown_op_count ? [...operator, ["formula", null]] : operator, data.operators);
  table("path-table", [["call", null], ["start", micros], ["time", micros], ["slack", micros], ["FLOPs", flops]],
    data.path.bars.filter((bar) => bar[4]).map(([name, begin, time, slack, , work]) => [name, begin, time, slack, work]));
  table("peak", live, data.peak);
  if (data.outliving.length) table("outliving", [...live, ["held by", null], ["steps too long", whole]], data.outliving);
  else byId("outliving-card").remove();

  const dark = matchMedia("(prefers-color-scheme: dark)");
  setTheme(dark.matches ? "dark" : "light");
  dark.addEventListener("change", () => setTheme(dark.matches ? "dark" : "light"));
  byId("theme").addEventListener("click", () =>
    setTheme(document.documentElement.dataset.theme === "dark" ? "light" : "dark"));
  const peak = data.memory.steps.indexOf(data.memory.peak_step);
  if (peak >= 0) {
    showAlive(peak);
    byId("memory").on("plotly_hover", (event) => showAlive(event.points[0].pointIndex));
    byId("memory").on("plotly_unhover", () => showAlive(peak));
  }
}

start();
