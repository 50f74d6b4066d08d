// The page: what the server tells goes to the map and the panels, what the viewer does goes back.
import { byId, html, setText } from "./dom.js";
import { drawBar, drawCurve, drawField, nearest, range, readField } from "./field.js";
import { MARGIN, boxOf, drawKey, drawOverlay, frameOf } from "./overlay.js";
import { drawAgents, drawEvents, drawModel, drawQuestions, drawTraffic } from "./panels.js";
import { drawSliders, slid } from "./sliders.js";
import { follow, send } from "./state.js";
import { ago, listed, number } from "./words.js";

const plot = byId("plot"), canvas = byId("field"), overlay = byId("overlay");
const page = { state: {}, field: null, mode: "mean", cursor: null, chosen: "", rows: {}, rowsOf: "", curve: [0, 1], frame: null, changed: new Set(), painted: "", heard: 0, lost: false, lastEvent: null };
// For whoever measures: how many updates were drawn, and how long the last one took from its message to the screen.
const drawn = (globalThis.fleetgpDrawn = { messages: 0, updates: 0, milliseconds: 0, worst: 0 });
const saved = byId("saved") && JSON.parse(byId("saved").textContent);

// ---- drawing ---------------------------------------------------------------------------------------------------

let pending = 0, arrived = 0;
function schedule(...keys) {
  keys.forEach((key) => page.changed.add(key));
  if (pending) return;
  arrived = performance.now();
  pending = requestAnimationFrame(() => {
    pending = 0;
    draw(page.changed);
    page.changed = new Set();
    const channel = new MessageChannel(); // its message comes after the paint
    channel.port1.onmessage = () => {
      channel.port1.close();
      drawn.updates += 1;
      drawn.milliseconds = performance.now() - arrived;
      drawn.worst = Math.max(drawn.worst, drawn.milliseconds);
    };
    channel.port2.postMessage(0);
  });
}

function draw(changed) {
  const { state } = page, any = (...keys) => keys.some((key) => changed.has(key));
  if (!state.fleet) return;
  if (any("fleet")) drawFleet();
  if (any("sentence", "tone")) { setText("sentence", state.sentence || ""); document.body.dataset.tone = state.tone || "busy"; }
  if (any("agents", "fleet", "chosen-agent", "now")) drawAgents(state, page.chosen, chooseShown);
  if (any("model", "series", "fleet")) drawModel(state);
  if (any("links", "kinds", "totals", "maps")) drawTraffic(state);
  if (any("events")) drawEvents(state);
  if (any("questions")) drawQuestions(state);
  if (any("chosen", "fleet", "map")) drawChoices();
  if (any("map", "field", "mode", "size", "fleet", "agents", "links", "parts", "cursor", "chosen-agent", "rows")) drawMap(any("field", "mode", "size"));
  if (any("map", "maps", "now", "field")) drawMapText();
}

function drawFleet() {
  const { fleet } = page.state;
  document.title = `${fleet.name} · fleet`;
  setText("fleet", `${fleet.name}${fleet.simulated ? ", simulated" : ""}`);
  setText("map-title", fleet.inputs.length === 1 ? `${fleet.target} along ${fleet.inputs[0]}` : fleet.target);
  setText("confirm-text", `All ${fleet.kind} that are there work on it together, and answer questions in between. The map stays as it is until they are done.`);
  plot.setAttribute("aria-label", `Map of ${fleet.target}. The arrow keys move a point over it; Enter asks the fleet.`);
}

function drawMap(repaint) {
  const { state, field, mode } = page, width = plot.clientWidth, height = plot.clientHeight, one = state.fleet.inputs.length === 1;
  byId("no-map").hidden = Boolean(field);
  setText("no-map", state.maps?.asking ? "The fleet is drawing a map ..." : state.model?.words ? "The map comes soon." : "The map comes as soon as the fleet has learned.");
  if (field && repaint) paint(width, height, one);
  const box = boxOf(state, page.curve);
  page.frame = box && width > 0 ? frameOf(box, width, height) : null;
  if (!page.frame) return;
  overlay.setAttribute("viewBox", `0 0 ${width} ${height}`);
  drawOverlay(overlay, state, page.frame, page.cursor, page.rows, page.chosen);
  drawKey(byId("key"), state, !one && Boolean(field?.unknown.some(Boolean)));
  byId("scale").hidden = !field || one;
  if (field) drawTable();
}

function paint(width, height, one) {
  const { field, mode, state } = page, sharp = Math.min(2, devicePixelRatio || 1);
  canvas.style.left = `${MARGIN.left}px`;
  canvas.style.top = `${MARGIN.top}px`;
  canvas.style.width = `${width - MARGIN.left - MARGIN.right}px`;
  canvas.style.height = `${height - MARGIN.top - MARGIN.bottom}px`;
  canvas.width = Math.max(1, Math.round((width - MARGIN.left - MARGIN.right) * sharp));
  canvas.height = Math.max(1, Math.round((height - MARGIN.top - MARGIN.bottom) * sharp));
  if (one) {
    page.curve = drawCurve(canvas, field, mode, getComputedStyle(document.body).getPropertyValue("--strong").trim());
    return;
  }
  const ends = range(field[mode]);
  drawField(canvas, field, mode, ends);
  drawBar(byId("bar"), mode);
  setText("scale-name", mode === "mean" ? state.fleet.target : `± ${state.fleet.target}`);
  setText("scale-low", number(ends[0]));
  setText("scale-high", number(ends[1]));
}

function drawMapText() {
  const { map = {}, maps = {}, now, fleet } = page.state, parts = [];
  if (map.time) setText("map-title", `${fleet.target}: map of ${map.time}`);
  if (map.shape) {
    const kind = map.shape.length > 1 ? "Map" : "Curve";
    parts.push(`${kind} of ${map.shape.join(" × ")} points, ${ago(now - map.t)} old, asked of ${map.agent} by ${map.method}.`);
    if (map.missing?.length) parts.push(`${listed(map.missing)} had no say in it.`);
  }
  if (!saved && maps.stale) parts.push(`It is old: ${maps.stale}.`);
  if (!saved && maps.problem) parts.push(`No new map: ${maps.problem}.`);
  else if (!saved && maps.asking) parts.push("A new one is on its way.");
  else if (!saved && maps.next) {
    const soon = maps.next - now < 600 ? `in about ${ago(maps.next - now)}` : `when the ${fleet.kind} can spare it`;
    parts.push(`${maps.stale ? "The next" : "A finer one"} comes ${soon}.`);
  }
  setText("map-text", parts.join(" "));
  byId("plot").classList.toggle("stale", Boolean(maps.stale) && !saved);
}

function drawTable() {
  const details = byId("map-table"), { field, state, frame } = page;
  if (!details.open || details.dataset.version === `${state.map.version}${page.mode}`) return;
  details.dataset.version = `${state.map.version}${page.mode}`;
  const one = state.fleet.inputs.length === 1, steps = [0, 1 / 6, 2 / 6, 3 / 6, 4 / 6, 5 / 6, 1];
  const at = (d, u) => number(state.map.low[d] + u * (state.map.high[d] - state.map.low[d]));
  const head = html("tr", {}, html("th", {}, one ? "" : `${state.fleet.inputs[1]} \\ ${state.fleet.inputs[0]}`), ...steps.map((u) => html("th", { scope: "col" }, at(0, u))));
  const body = (one ? [0] : [...steps].reverse()).map((v) => html("tr", {}, html("th", { scope: "row" }, one ? state.fleet.target : at(1, v)), ...steps.map((u) => html("td", { class: "number" }, number(nearest(field, page.mode, [u, v]))))));
  details.querySelector("div").replaceChildren(html("table", {}, html("caption", {}, page.mode === "mean" ? "What we expect" : "How unsure we are: one standard deviation"), html("thead", {}, head), html("tbody", {}, ...body)));
}

// ---- choosing and asking ---------------------------------------------------------------------------------------

function fill(select, options, value) {
  const told = JSON.stringify(options);
  if (select.dataset.told !== told) {
    select.dataset.told = told;
    select.replaceChildren(...options.map(([key, text]) => html("option", { value: key }, text)));
  }
  if (document.activeElement !== select) select.value = value;
}

function drawChoices() {
  const { fleet, chosen, agents, map } = page.state;
  fill(byId("agent"), [["", `any of the ${fleet.kind}`], ...Object.keys(agents || {}).map((name) => [name, name])], chosen?.agent ?? "");
  fill(byId("method"), fleet.methods.map((name) => [name, name === fleet.method ? `${name} (usual)` : name]), chosen?.method ?? fleet.method);
  drawSliders(byId("sliders"), page.state, (at) => act("/choose", { at }));
}

function chooseShown(name) {
  page.chosen = name;
  schedule("chosen-agent");
}

async function act(path, content) {
  try {
    return await send(path, content);
  } catch (error) {
    say(error.message);
    byId("answer").replaceChildren(html("p", { class: "problem" }, error.message));
    return null;
  }
}

function say(text) { byId("say").textContent = text; }

async function ask() {
  if (!page.frame || !page.cursor || saved) return;
  const { state } = page, shown = page.cursor.slice(0, Math.min(2, state.fleet.inputs.length));
  const point = [...shown, ...slid(byId("sliders"))];
  byId("answer").replaceChildren(html("p", { class: "quiet" }, "Asking the fleet ..."));
  const told = await act("/ask", { point });
  if (!told) return;
  const place = state.fleet.inputs.map((name, k) => `${name} ${number(told.point[k])}`).join(", ");
  const doubt = told.unknown ? html("p", { class: "problem" }, "Nobody has measured near here: this is no better than a guess.") : "";
  const next = told.observed_low === undefined ? "" : html("p", { class: "quiet" }, `A new measurement would be between ${number(told.observed_low)} and ${number(told.observed_high)}.`);
  const without = told.missing.length ? ` ${listed(told.missing)} could not be asked.` : "";
  byId("answer").replaceChildren(
    html("p", { class: "quiet" }, `At ${place}:`),
    html("p", { class: "value", "data-point": JSON.stringify(told.point), "data-mean": told.mean, "data-low": told.low, "data-high": told.high }, `${state.fleet.target} ${number(told.mean, 4)}`),
    html("p", {}, `Between ${number(told.low)} and ${number(told.high)}, with 95 % certainty.`), doubt, next,
    html("p", { class: "quiet" }, `${listed(told.took_part)} had a say. ${told.agent} was asked, by ${told.method}.${without}`));
}

function moveTo(unit, by) {
  page.cursor = page.frame.value(unit.map((u) => Math.min(1, Math.max(0, u))));
  const { state, field } = page, place = state.fleet.inputs.slice(0, 2).map((name, k) => `${name} ${number(page.cursor[k])}`).join(", ");
  if (by === "keys") say(field ? `${place}: about ${number(nearest(field, page.mode, unit))}` : place);
  schedule("cursor");
}

plot.addEventListener("click", (event) => {
  if (!page.frame) return;
  const box = plot.getBoundingClientRect(), unit = page.frame.unit(event.clientX - box.left, event.clientY - box.top);
  if (unit.some((u) => u < -0.02 || u > 1.02)) return;
  moveTo(unit, "click");
  ask();
});
plot.addEventListener("keydown", (event) => {
  const step = event.shiftKey ? 0.1 : 0.02, moves = { ArrowLeft: [-step, 0], ArrowRight: [step, 0], ArrowUp: [0, step], ArrowDown: [0, -step] };
  if (!page.frame || !(event.key in moves || event.key === "Enter")) return;
  event.preventDefault();
  const at = page.cursor ? page.frame.unit(page.frame.x(page.cursor[0]), page.frame.y(page.cursor[1])) : [0.5, 0.5];
  moveTo(at.map((u, d) => Math.min(1, Math.max(0, u + (moves[event.key]?.[d] ?? 0)))), "keys");
  if (event.key === "Enter") ask();
});
byId("modes").addEventListener("click", (event) => {
  const mode = event.target.dataset.mode;
  if (!mode) return;
  page.mode = mode;
  for (const button of byId("modes").children) button.setAttribute("aria-pressed", String(button.dataset.mode === mode));
  schedule("mode");
});
byId("agent").addEventListener("change", (event) => act("/choose", { agent: event.target.value }));
byId("method").addEventListener("change", (event) => act("/choose", { method: event.target.value }));
byId("renew").addEventListener("click", () => act("/renew", {}));
byId("train").addEventListener("click", () => byId("confirm").showModal());
byId("confirm").addEventListener("close", async (event) => {
  if (event.target.returnValue === "yes" && (await act("/train", { confirm: true }))) say("The fleet was asked to learn again.");
  event.target.returnValue = "";
});
byId("map-table").addEventListener("toggle", () => schedule("map"));
byId("theme").addEventListener("click", () => {
  try { localStorage.setItem("fleetgp-theme", document.documentElement.dataset.theme === "dark" ? "light" : "dark"); } catch { return; }
  dispatchEvent(new Event("theme-chosen"));
});
addEventListener("themed", () => { setText("theme", document.documentElement.dataset.theme === "dark" ? "Light" : "Dark"); schedule("mode"); });
setText("theme", document.documentElement.dataset.theme === "dark" ? "Light" : "Dark");
new ResizeObserver(() => schedule("size")).observe(plot);

// ---- what the server tells -------------------------------------------------------------------------------------

async function loadField(about) {
  const answer = await fetch(`/field/${about.version}`).catch(() => null);
  if (!answer?.ok) return;
  const buffer = await answer.arrayBuffer();
  if (page.state.map?.version !== about.version) return; // another one has come since
  page.field = readField(buffer, about);
  schedule("field");
}

async function loadRows() {
  const showing = Object.entries(page.state.agents || {}).filter(([, agent]) => agent.shows_rows).map(([name, agent]) => `${name}:${agent.rows}`).join();
  if (showing === page.rowsOf) return;
  page.rowsOf = showing;
  const answer = showing ? await fetch("/rows").catch(() => null) : null;
  page.rows = answer?.ok ? await answer.json() : {};
  schedule("rows");
}

function announce(events) {
  const [last, event] = Object.entries(events || {}).at(-1) ?? [0, null];
  if (event && page.lastEvent !== null && Number(last) > page.lastEvent) say(event.words);
  page.lastEvent = Number(last);
}

function live() {
  const silent = (performance.now() - page.heard) / 1000, old = page.lost || silent > 6;
  byId("live").textContent = saved ? `saved ${new Date(1000 * page.state.now).toLocaleString()}` : old ? "old" : "live";
  byId("live").classList.toggle("bad", old && !saved);
  byId("old").hidden = saved || !old || !page.heard;
  if (!byId("old").hidden) byId("old").textContent = `This page has heard nothing for ${ago(silent)}: what it shows is old. Is \`fleetgp watch\` still running?`;
  document.body.classList.toggle("old", old && !saved);
}

function changed(state, keys) {
  const before = page.state.map?.version;
  page.state = state;
  page.heard = performance.now();
  drawn.messages += 1;
  page.lost = false;
  if (state.map?.version && state.map.version !== before) loadField(state.map);
  if (keys.has("agents")) loadRows();
  if (keys.has("events")) announce(state.events);
  schedule(...keys);
  live();
}

if (saved) {
  document.body.classList.add("saved");
  page.rows = saved.rows;
  page.state = saved.picture;
  if (saved.field) page.field = readField(Uint8Array.from(atob(saved.field), (c) => c.charCodeAt(0)).buffer, saved.picture.map);
  byId("answer").replaceChildren(html("p", { class: "quiet" }, "This is a saved page: the fleet cannot be asked from it."));
  schedule(...Object.keys(saved.picture), "field", "rows");
  live();
} else {
  follow(changed, () => { page.lost = true; live(); });
  setInterval(live, 1000);
}
