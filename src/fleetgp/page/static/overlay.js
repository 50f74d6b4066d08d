// What lies over the map: axes, links, agents, the point that is looked at.
import { PARTS, outline } from "./colours.js";
import { html, svg } from "./dom.js";
import { number } from "./words.js";

export const MARGIN = { left: 50, right: 14, top: 12, bottom: 38 };

// The box that is shown: that of the map, or before there is one that of all agents' places. Undefined if nobody knows.
export function boxOf(state, curve) {
  const map = state.map || {}, one = (state.fleet?.inputs.length ?? 2) === 1;
  if (map.shape) return { low: [map.low[0], one ? curve[0] : map.low[1]], high: [map.high[0], one ? curve[1] : map.high[1]] };
  const places = Object.values(state.agents || {}).map((agent) => agent.place).filter(Boolean);
  if (!places.length) return undefined;
  const edge = (side, best) => [0, 1].map((d) => Math[best](...places.map((place) => place[side][d] ?? (side === "low" ? 0 : 1))));
  return { low: edge("low", "min"), high: edge("high", "max") };
}

// From values to pixels and back.
export function frameOf(box, width, height) {
  const inner = { width: width - MARGIN.left - MARGIN.right, height: height - MARGIN.top - MARGIN.bottom };
  const span = [0, 1].map((d) => box.high[d] - box.low[d] || 1);
  return {
    box, inner, width, height,
    x: (value) => MARGIN.left + ((value - box.low[0]) / span[0]) * inner.width,
    y: (value) => MARGIN.top + (1 - (value - box.low[1]) / span[1]) * inner.height,
    unit: (px, py) => [(px - MARGIN.left) / inner.width, 1 - (py - MARGIN.top) / inner.height],
    value: (unit) => unit.map((u, d) => box.low[d] + u * span[d]),
  };
}

function ticks(low, high, most) {
  const rough = (high - low) / most, power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((k) => k * power).find((size) => size >= rough) ?? rough;
  const found = [];
  for (let k = Math.ceil(low / step); k * step <= high * (1 + 1e-12); k++) found.push(k * step);
  return found.length ? found : [low];
}

function axes(frame, inputs, target) {
  const { x, y, box } = frame, bottom = y(box.low[1]), parts = [];
  for (const value of ticks(box.low[0], box.high[0], Math.max(2, frame.inner.width / 110))) {
    parts.push(svg("text", { x: x(value), y: bottom + 16, class: "tick middle" }, number(value)));
  }
  for (const value of ticks(box.low[1], box.high[1], Math.max(2, frame.inner.height / 80))) {
    parts.push(svg("text", { x: MARGIN.left - 7, y: y(value) + 4, class: "tick end" }, number(value)));
  }
  parts.push(svg("text", { x: x(box.high[0]), y: bottom + 32, class: "tick end name" }, `${inputs[0]} →`));
  parts.push(svg("text", { x: 4, y: bottom + 32, class: "tick name" }, `↑ ${inputs[1] ?? target}`));
  return parts;
}

// Where an agent stands; with one input agents stand in a row near the bottom.
function standing(agent, frame, one) {
  if (!agent?.place) return undefined;
  const centre = agent.place.centre;
  return [frame.x(centre[0]), one ? frame.height - MARGIN.bottom - 16 : frame.y(centre[1])];
}

function sign(agent, r) {
  const away = ["gone", "silent"].includes(agent.presence), part = PARTS[(agent.part ?? 0) % PARTS.length];
  const found = [svg("path", { d: outline(away ? "square" : part.shape, r), class: away ? "agent away" : "agent", fill: away ? undefined : part.colour })];
  if (away) found.push(svg("path", { d: `M${-r} ${-r}L${r} ${r}M${r} ${-r}L${-r} ${r}`, class: "cross" }));
  if (agent.phase === "training" && !away) found.push(svg("circle", { r: r + 4, class: "busy" }));
  return found;
}

// How a link of a state looks, also in the key. Every state has a dash of its own; long ones bend around whoever is between.
function line(state, { x1, y1, x2, y2 }, bend = 0) {
  const [mx, my] = [(x1 + x2) / 2, (y1 + y2) / 2], [cx, cy] = [mx + bend * (y2 - y1), my - bend * (x2 - x1)];
  const d = `M${x1} ${y1}Q${cx} ${cy} ${x2} ${y2}`, middle = `translate(${(mx + cx) / 2} ${(my + cy) / 2})`;
  const parts = [svg("path", { d, class: "casing" }), svg("path", { d, class: `link ${state}` })];
  if (state === "down" || state === "refused") parts.push(svg("path", { d: "M-5 -5L5 5M5 -5L-5 5", transform: middle, class: "cut" }));
  return svg("g", {}, ...parts);
}

export function drawOverlay(target, state, frame, cursor, rows, chosen) {
  const agents = Object.entries(state.agents || {}), one = state.fleet.inputs.length === 1, parts = axes(frame, state.fleet.inputs, state.fleet.target);
  const place = Object.fromEntries(agents.map(([name, agent]) => [name, standing(agent, frame, one)]));
  for (const shown of one ? [] : Object.values(rows)) {
    for (const [x, y] of shown.inputs) parts.push(svg("circle", { cx: frame.x(x), cy: frame.y(y), r: 1.6, class: "row-dot" }));
  }
  const box = !one && chosen && state.agents[chosen]?.place;
  if (box) {
    const [x, y] = [frame.x(box.low[0]), frame.y(box.high[1])];
    parts.push(svg("rect", { x, y, width: frame.x(box.high[0]) - x, height: frame.y(box.low[1]) - y, class: "box" }));
  }
  for (const { a, b, state: how } of Object.values(state.links || {})) {
    if (!place[a] || !place[b]) continue;
    const ends = { x1: place[a][0], y1: place[a][1], x2: place[b][0], y2: place[b][1] }, length = Math.hypot(ends.x2 - ends.x1, ends.y2 - ends.y1);
    parts.push(line(how, ends, length > 0.4 * frame.inner.width ? -0.35 : 0));
  }
  const many = agents.length > 12;
  for (const [name, agent] of agents) {
    if (!place[name]) continue;
    const label = many && name !== chosen && agent.presence === "there" ? "" : svg("text", { y: -14, class: one ? "label plain" : "label" }, name);
    parts.push(svg("g", { transform: `translate(${place[name][0]} ${place[name][1]})`, "data-agent": name, "data-presence": agent.presence }, ...sign(agent, many ? 6 : 8), label));
  }
  if (cursor) {
    const x = frame.x(cursor[0]), y = one ? undefined : frame.y(cursor[1]);
    parts.push(svg("path", { class: "cursor-casing", d: one ? `M${x} ${MARGIN.top}V${frame.height - MARGIN.bottom}` : `M${x - 12} ${y}H${x + 12}M${x} ${y - 12}V${y + 12}` }));
    parts.push(svg("path", { class: "cursor", d: one ? `M${x} ${MARGIN.top}V${frame.height - MARGIN.bottom}` : `M${x - 12} ${y}H${x + 12}M${x} ${y - 12}V${y + 12}` }));
  }
  target.replaceChildren(...parts);
}

const LINKS = { up: "hear each other", frozen: "one says nothing", down: "do not hear each other", missing: "one is gone", refused: "different fleet files" };

// The signs that are on the map now, and what they mean.
export function drawKey(target, state, unknown) {
  const entries = [], row = (label, ...content) => entries.push(html("li", {}, svg("svg", { viewBox: "-15 -9 30 18", width: 30, height: 18, "aria-hidden": "true" }, ...content), label));
  const parts = state.parts || [];
  parts.slice(0, parts.length > 1 ? 4 : 1).forEach((part, k) => {
    const text = parts.length > 1 ? `part ${k + 1}: ${part.length > 3 ? part.length + " " + state.fleet.kind : part.join(", ")}` : `${state.fleet.kind.slice(0, -1)}, at the middle of its rows`;
    row(text, ...sign({ presence: "there", part: k }, 6));
  });
  const away = ["gone", "silent"].filter((word) => Object.values(state.agents || {}).some((agent) => agent.presence === word));
  if (away.length) row(away.join(" or "), ...sign({ presence: "gone" }, 6));
  const found = new Set(Object.values(state.links || {}).map((link) => link.state));
  for (const [how, text] of Object.entries(LINKS)) {
    if (found.has(how)) row(text, line(how, { x1: -14, y1: 0, x2: 14, y2: 0 }));
  }
  if (unknown) row("nobody has measured near here", svg("path", { d: "M-14 8L-2 -8M-4 8L8 -8M6 8L14 -3", class: "hatch" }));
  target.replaceChildren(...entries);
}

// An agent's sign beside its name in the table.
export function signOf(agent) {
  return svg("svg", { viewBox: "-12 -12 24 24", width: 18, height: 18, "aria-hidden": "true" }, ...sign(agent, 6));
}
