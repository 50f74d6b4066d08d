// The map itself: values between the points that were asked for, colours, and a curve where there is one input.
import { colours } from "./colours.js";

// float32 means, float32 deviations, a byte a point for "nobody knows better".
export function readField(buffer, about) {
  const count = about.shape.reduce((a, b) => a * b, 1);
  return {
    about, count,
    mean: new Float32Array(buffer, 0, count),
    deviation: new Float32Array(buffer, 4 * count, count),
    unknown: new Uint8Array(buffer, 8 * count, count),
  };
}

export function range(values) {
  let low = Infinity, high = -Infinity;
  for (const value of values) { if (value < low) low = value; if (value > high) high = value; }
  return [low, high];
}

// Weights of the four neighbours of a place between two points (Catmull-Rom), at the border of three or two.
function taps(count, wanted) {
  const result = [];
  for (let i = 0; i < wanted; i++) {
    const place = (i / (wanted - 1)) * (count - 1), k = Math.min(Math.floor(place), Math.max(0, count - 2)), t = place - k;
    const weights = [((2 - t) * t - 1) * t / 2, ((3 * t - 5) * t * t + 2) / 2, ((4 - 3 * t) * t + 1) * t / 2, (t - 1) * t * t / 2];
    const low = Math.max(0, k - 1), high = Math.min(count - 1, k + 2), right = Math.min(count - 1, k + 1);
    if (k === 0) { weights[1] += 2 * weights[0]; weights[2] -= weights[0]; weights[0] = 0; }
    if (k + 2 > count - 1) { weights[2] += 2 * weights[3]; weights[1] -= weights[3]; weights[3] = 0; }
    result.push([[low, k, right, high], weights]);
  }
  return result;
}

// A coarse map as a smooth one: (width x height) values from (shape[0] x shape[1]), first along x, then along y.
export function smooth(values, [columns, rows], width, height) {
  const half = new Float32Array(width * rows), whole = new Float32Array(width * height);
  taps(columns, width).forEach(([at, weight], i) => {
    for (let y = 0; y < rows; y++) {
      let sum = 0;
      for (let k = 0; k < 4; k++) sum += weight[k] * values[y * columns + at[k]];
      half[y * width + i] = sum;
    }
  });
  taps(rows, height).forEach(([at, weight], j) => {
    for (let x = 0; x < width; x++) {
      let sum = 0;
      for (let k = 0; k < 4; k++) sum += weight[k] * half[at[k] * width + x];
      whole[j * width + x] = sum;
    }
  });
  return whole;
}

// The value at a place in the unit square, from the nearest point: for what is said while one moves over the map.
export function nearest(field, mode, place) {
  const [columns, rows] = [...field.about.shape, 1];
  const x = Math.round(place[0] * (columns - 1)), y = rows > 1 ? Math.round(place[1] * (rows - 1)) : 0;
  return field[mode][y * columns + x];
}

function hatched(context, field, width, height) {
  const [columns, rows] = field.about.shape;
  if (!field.unknown.some(Boolean)) return;
  const mask = new OffscreenCanvas(columns, rows), pixels = new ImageData(columns, rows);
  for (let y = 0; y < rows; y++) {
    for (let x = 0; x < columns; x++) pixels.data[4 * ((rows - 1 - y) * columns + x) + 3] = field.unknown[y * columns + x] ? 255 : 0;
  }
  mask.getContext("2d").putImageData(pixels, 0, 0);
  const layer = new OffscreenCanvas(width, height), paint = layer.getContext("2d");
  paint.drawImage(mask, 0, 0, width, height);
  paint.globalCompositeOperation = "source-in";
  paint.strokeStyle = "rgba(255, 255, 255, 0.55)";
  paint.lineWidth = 1.5;
  const lines = new OffscreenCanvas(width, height), pen = lines.getContext("2d");
  pen.strokeStyle = paint.strokeStyle;
  pen.beginPath();
  for (let x = -height; x < width; x += 9) { pen.moveTo(x, height); pen.lineTo(x + height, 0); }
  pen.stroke();
  paint.drawImage(lines, 0, 0);
  context.drawImage(layer, 0, 0);
}

// Draws a map of two inputs, north up, over the whole canvas.
export function drawField(canvas, field, mode, [low, high]) {
  const [columns, rows] = field.about.shape, fine = (count) => Math.max(100, Math.min(200, count));
  const width = columns < 100 ? 100 : fine(columns), height = rows < 100 ? 100 : fine(rows);
  const values = smooth(field[mode], [columns, rows], width, height), table = colours(mode);
  const image = new ImageData(width, height), scale = high > low ? 255 / (high - low) : 0;
  for (let y = 0; y < height; y++) {
    for (let x = 0; x < width; x++) {
      const value = values[y * width + x], c = 3 * Math.max(0, Math.min(255, Math.round((value - low) * scale)));
      const p = 4 * ((height - 1 - y) * width + x);
      image.data[p] = table[c]; image.data[p + 1] = table[c + 1]; image.data[p + 2] = table[c + 2]; image.data[p + 3] = 255;
    }
  }
  const small = new OffscreenCanvas(width, height), context = canvas.getContext("2d");
  small.getContext("2d").putImageData(image, 0, 0);
  context.imageSmoothingEnabled = true;
  context.imageSmoothingQuality = "high";
  context.drawImage(small, 0, 0, canvas.width, canvas.height);
  hatched(context, field, canvas.width, canvas.height);
}

// Draws a curve of one input, with its 95 % band, or the deviation alone. Returns the range of its axis.
export function drawCurve(canvas, field, mode, ink) {
  const context = canvas.getContext("2d"), { width, height } = canvas, n = field.count, w = 1.96;
  context.clearRect(0, 0, width, height);
  const above = Array.from(field.mean, (m, i) => (mode === "mean" ? m + w * field.deviation[i] : field.deviation[i]));
  const below = Array.from(field.mean, (m, i) => (mode === "mean" ? m - w * field.deviation[i] : 0));
  const middle = mode === "mean" ? field.mean : field.deviation, low = range(below)[0], high = range(above)[1];
  const x = (i) => (i / (n - 1)) * width, y = (v) => height - ((v - low) / (high - low || 1)) * 0.8 * height - 0.1 * height;
  context.beginPath();
  above.forEach((v, i) => context.lineTo(x(i), y(v)));
  below.map((v, i) => [v, i]).reverse().forEach(([v, i]) => context.lineTo(x(i), y(v)));
  context.fillStyle = ink + "33";
  context.fill();
  context.beginPath();
  middle.forEach((v, i) => context.lineTo(x(i), y(v)));
  context.strokeStyle = ink;
  context.lineWidth = 3;
  context.stroke();
  const pad = (high - low || 1) / 8;
  return [low - pad, high + pad];
}

export function drawBar(canvas, mode) {
  const image = new ImageData(256, 1), table = colours(mode);
  for (let i = 0; i < 256; i++) image.data.set([table[3 * i], table[3 * i + 1], table[3 * i + 2], 255], 4 * i);
  canvas.getContext("2d").putImageData(image, 0, 0);
}
