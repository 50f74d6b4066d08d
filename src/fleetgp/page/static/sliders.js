// The values of the inputs after the second, one slider each.
import { html } from "./dom.js";
import { moment, number } from "./words.js";

export const slid = (target) => [...target.querySelectorAll("input")].map((slider) => Number(slider.value));

export function drawSliders(target, state, choose) {
  const { fleet, chosen, agents, map, time } = state, others = fleet.inputs.slice(2);
  if (target.childElementCount === others.length) {
    if (!chosen?.at?.length) followMap(target, map);
    return;
  }
  const places = Object.values(agents || {}).map((agent) => agent.place).filter(Boolean);
  if (!places.length) return;
  target.replaceChildren(...others.map((name, k) => {
    const low = Math.min(...places.map((place) => place.low[k + 2])), high = Math.max(...places.map((place) => place.high[k + 2]));
    const value = chosen?.at?.[k] ?? map?.at?.[k] ?? (low + high) / 2, units = time?.input === name ? time.units : "";
    const ends = { min: Math.min(low, value), max: Math.max(high, value) }, shown = html("output", {});
    const slider = html("input", { type: "range", ...ends, step: (high - low) / 100 || 1, value, "data-input": k });
    const show = () => { shown.textContent = moment(Number(slider.value), units); };
    show();
    slider.addEventListener("input", show);
    slider.addEventListener("change", () => choose(slid(target)));
    return html("label", {}, `${name} `, slider, shown);
  }));
}

// Until a viewer chooses, questions are about the values of the map. Its time, now, may lie after all rows.
function followMap(target, map) {
  [...target.querySelectorAll("input")].forEach((slider, k) => {
    const value = map?.at?.[k];
    if (value === undefined || slider.dataset.followed === String(value) || document.activeElement === slider) return;
    slider.dataset.followed = value;
    slider.min = Math.min(Number(slider.min), value);
    slider.max = Math.max(Number(slider.max), value);
    slider.step = "any";
    slider.value = value;
    slider.dispatchEvent(new Event("input"));
  });
}
