// Viridis for means, cividis for deviations: even steps for every kind of colour vision, and in grey.
const SCALES = {
  mean: ["440154", "482878", "3e4989", "31688e", "26828e", "1f9e89", "35b779", "6ece58", "b5de2b", "fde725"],
  deviation: ["00224e", "123570", "3b496c", "575d6d", "707173", "8a8678", "a59c74", "c3b369", "e1cc55", "fee838"],
};
// Parts of a split fleet: colours of Okabe and Ito, each with a shape of its own.
export const PARTS = [
  { colour: "#0072b2", shape: "circle" },
  { colour: "#d55e00", shape: "diamond" },
  { colour: "#009e73", shape: "triangle" },
  { colour: "#cc79a7", shape: "square" },
];

// 256 colours, as red, green, blue.
export function colours(mode) {
  const anchors = SCALES[mode].map((code) => [0, 2, 4].map((k) => parseInt(code.slice(k, k + 2), 16)));
  const table = new Uint8Array(768);
  for (let i = 0; i < 256; i++) {
    const place = (i / 255) * (anchors.length - 1), low = Math.min(Math.floor(place), anchors.length - 2);
    for (let k = 0; k < 3; k++) table[3 * i + k] = anchors[low][k] + (place - low) * (anchors[low + 1][k] - anchors[low][k]);
  }
  return table;
}

// The outline of an agent's sign, of radius r around the origin.
export function outline(shape, r) {
  if (shape === "diamond") return `M0 ${-1.3 * r}L${1.3 * r} 0L0 ${1.3 * r}L${-1.3 * r} 0Z`;
  if (shape === "triangle") return `M0 ${-1.3 * r}L${1.2 * r} ${0.9 * r}L${-1.2 * r} ${0.9 * r}Z`;
  if (shape === "square") return `M${-r} ${-r}H${r}V${r}H${-r}Z`;
  return `M${-r} 0A${r} ${r} 0 1 0 ${r} 0A${r} ${r} 0 1 0 ${-r} 0Z`;
}
