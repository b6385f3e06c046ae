"use strict";
// Draw attention: alpha, upsampled by 8 and smoothed with a Gaussian, as a dark veil over
// the photo that is transparent where alpha is largest.

const UPSAMPLING = 8; // pixels of the veil per location
const SIGMA = 0.8; // of the Gaussian, in locations
const VEIL = 0.8; // opacity of the veil without attention

function smoothing(cells) {
  const rows = [];
  for (let p = 0; p < cells * UPSAMPLING; p++) {
    const at = (p + 0.5) / UPSAMPLING;
    const weights = [];
    for (let k = 0; k < cells; k++) {
      let sum = 0;
      for (const centre of [k + 0.5, -k - 0.5, 2 * cells - k - 0.5]) {
        sum += Math.exp(-0.5 * ((at - centre) / SIGMA) ** 2);
      }
      weights.push(sum);
    }
    const whole = weights.reduce((a, b) => a + b, 0);
    rows.push(weights.map((w) => w / whole));
  }
  return rows;
}

// (rows, columns) weights -> a small canvas, black with the veil as its opacity.
function veilOf(alpha) {
  const down = smoothing(alpha.length);
  const across = smoothing(alpha[0].length);
  const half = alpha.map((row) => across.map((w) => w.reduce((s, v, k) => s + v * row[k], 0)));
  const map = down.map((w) => across.map((_, x) => w.reduce((s, v, k) => s + v * half[k][x], 0)));
  const most = Math.max(...map.map((row) => Math.max(...row)), 1e-12);
  const canvas = document.createElement("canvas");
  canvas.width = across.length;
  canvas.height = down.length;
  const pixels = new ImageData(canvas.width, canvas.height);
  map.forEach((row, y) => row.forEach((value, x) => {
    pixels.data[4 * (y * canvas.width + x) + 3] = Math.round(255 * VEIL * (1 - value / most));
  }));
  canvas.getContext("2d").putImageData(pixels, 0, 0);
  return canvas;
}

// Draw a photo into a box of a canvas, under the veil of word k if k >= 0; the location
// that hard attention selected is framed.
function drawPhoto(context, photo, box, answer, k) {
  const [x, y, width, height] = box;
  context.imageSmoothingQuality = "high";
  context.drawImage(photo, x, y, width, height);
  if (!answer || k < 0) return;
  const [alpha, seen] = [answer.attention[k], answer.seen];
  const [left, top, right, bottom] = [
    x + seen[0] * width, y + seen[1] * height, x + seen[2] * width, y + seen[3] * height,
  ];
  context.fillStyle = `rgba(0, 0, 0, ${VEIL})`; // outside the region that the network sees
  context.fillRect(x, y, width, top - y);
  context.fillRect(x, bottom, width, y + height - bottom);
  context.fillRect(x, top, left - x, bottom - top);
  context.fillRect(right, top, x + width - right, bottom - top);
  context.drawImage(veilOf(alpha), left, top, right - left, bottom - top);
  if (!answer.locations) return;
  const across = (right - left) / alpha[0].length;
  const down = (bottom - top) / alpha.length;
  const row = Math.floor(answer.locations[k] / alpha[0].length);
  const column = answer.locations[k] % alpha[0].length;
  context.strokeStyle = "#ffd9a0";
  context.lineWidth = 2;
  context.strokeRect(left + column * across, top + row * down, across, down);
}

// Draw the outline of a region, fractions of the photo, into a box of a canvas.
function drawRegion(context, box, region) {
  const [x, y, width, height] = box;
  const outline = [
    x + region[0] * width, y + region[1] * height,
    (region[2] - region[0]) * width, (region[3] - region[1]) * height,
  ];
  for (const [colour, line, dashes] of [["#000", 4, []], ["#ffb000", 2, [8, 5]]]) {
    context.strokeStyle = colour;
    context.lineWidth = line;
    context.setLineDash(dashes);
    context.strokeRect(...outline);
  }
  context.setLineDash([]);
}

// The region of a caption as fractions of the photo, null for the whole photo.
function regionOf(answer) {
  if (!answer?.region) return null;
  const { region: [x0, y0, x1, y1], seen: [left, top, right, bottom] } = answer;
  const [across, down] = [right - left, bottom - top];
  return [left + x0 * across, top + y0 * down, left + x1 * across, top + y1 * down];
}

// The photo, and the photo under the attention of each word, side by side.
function figureOf(photo, answer) {
  const count = answer.words.length + 1;
  const columns = Math.ceil(count / Math.ceil(count / 6));
  const width = 240, gap = 12, text = 52;
  const height = Math.round((width * photo.height) / photo.width);
  const rows = Math.ceil(count / columns);
  const canvas = document.createElement("canvas");
  canvas.width = gap + columns * (width + gap);
  canvas.height = gap + rows * (height + text);
  const context = canvas.getContext("2d");
  context.fillStyle = "white";
  context.fillRect(0, 0, canvas.width, canvas.height);
  context.textAlign = "center";
  for (let k = 0; k < count; k++) {
    const x = gap + (k % columns) * (width + gap);
    const y = gap + Math.floor(k / columns) * (height + text);
    drawPhoto(context, photo, [x, y, width, height], answer, k - 1);
    if (answer.region) drawRegion(context, [x, y, width, height], regionOf(answer));
    if (!k) continue;
    context.fillStyle = "black";
    context.font = "bold 17px system-ui, sans-serif";
    context.fillText(answer.words[k - 1], x + width / 2, y + height + 19, width);
    context.fillStyle = "#666";
    context.font = "13px system-ui, sans-serif";
    context.fillText(numbersOf(answer, k - 1), x + width / 2, y + height + 37, width);
  }
  return canvas;
}

// A confidence with two decimals, or as many as tell it from the limits of the words:
// 0.718 is unsure, and 0.72 would be likely.
function confidenceFigures(confidence, limits) {
  for (let decimals = 2; decimals < 17; decimals++) {
    const text = confidence.toFixed(decimals);
    if (limits.every((least) => (Number(text) < least) === (confidence < least))) return text;
  }
  return String(confidence);
}

function numbersOf(answer, k) {
  const p = Math.exp(answer.word_log_probs[k]);
  const gated = answer.beta.some((beta) => beta !== 1); // a Transformer has no gates
  return `p ${p.toFixed(2)}` + (gated ? `   β ${answer.beta[k].toFixed(2)}` : "");
}
