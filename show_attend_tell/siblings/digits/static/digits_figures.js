"use strict";
// Draw digits, glimpses and windows on canvases. Coordinates are pixels of a digit from
// its top left corner.

const INK = { path: "#ff9e1b", box: "#35c4e8", window: "#ff5c39" }; // as in the figures

// Draw rows of values from 0 to 255 over a whole canvas; return canvas pixels per value.
function drawPixels(canvas, rows) {
  const [height, width] = [rows.length, rows[0].length];
  const small = document.createElement("canvas");
  [small.width, small.height] = [width, height];
  const pixels = new ImageData(width, height);
  rows.forEach((row, y) => row.forEach((value, x) => {
    pixels.data.set([value, value, value, 255], 4 * (y * width + x));
  }));
  small.getContext("2d").putImageData(pixels, 0, 0);
  const context = canvas.getContext("2d");
  context.imageSmoothingEnabled = false;
  context.drawImage(small, 0, 0, canvas.width, canvas.height);
  return canvas.width / width;
}

// Draw the path of the glimpses up to number k: it begins at a filled dot and ends at an
// open one, whose patch is framed.
function drawPath(canvas, digit, glimpses, k) {
  const scale = drawPixels(canvas, digit);
  const context = canvas.getContext("2d");
  const boxes = glimpses.slice(0, k + 1).map(({ box }) => box.map((x) => x * scale));
  const centres = boxes.map(([x0, y0, x1, y1]) => [(x0 + x1) / 2, (y0 + y1) / 2]);
  boxes.forEach(([x0, y0, x1, y1], t) => {
    context.globalAlpha = t === k ? 1 : 0.35;
    context.strokeStyle = INK.box;
    context.lineWidth = t === k ? 3 : 1.5;
    context.strokeRect(x0, y0, x1 - x0, y1 - y0);
  });
  context.globalAlpha = 1;
  context.strokeStyle = context.fillStyle = INK.path;
  context.lineWidth = 3;
  context.beginPath();
  for (const centre of centres) context.lineTo(...centre);
  context.stroke();
  for (const [t, radius] of [[0, 5], [k, 7]]) {
    context.beginPath();
    context.arc(...centres[t], radius, 0, 2 * Math.PI);
    if (t === 0) context.fill();
    if (t === k) context.stroke();
  }
}

// Draw a canvas of DRAW and the window that wrote it; the wider the filters, the wider its line.
function drawStep(canvas, drawing, step) {
  const scale = drawPixels(canvas, drawing.canvases[step]);
  const frame = drawing.windows[step - 1];
  if (!frame) return;
  const context = canvas.getContext("2d");
  const line = Math.min(Math.max((frame.deviation * scale) / 2, 2), 0.8 * scale);
  // A window may be larger than the canvas: its frame is then on the border.
  const inside = (x) => Math.min(Math.max(x * scale, line / 2), canvas.width - line / 2);
  const [x0, y0, x1, y1] = frame.box.map(inside);
  context.strokeStyle = INK.window;
  context.lineWidth = line;
  context.globalAlpha = 0.8;
  context.strokeRect(x0, y0, x1 - x0, y1 - y0);
  context.globalAlpha = 1;
}

// Return a bar of a chart with its name below.
function barOf(name, share, chosen) {
  const bar = document.createElement("div");
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [20, 100];
  const context = canvas.getContext("2d");
  const style = getComputedStyle(document.body);
  context.fillStyle = style.getPropertyValue("--line");
  context.fillRect(0, 98, 20, 2);
  context.fillStyle = style.getPropertyValue(chosen ? "--accent" : "--faint");
  context.fillRect(0, 98 - 98 * share, 20, 98 * share);
  const text = document.createElement("span");
  text.textContent = name;
  bar.append(canvas, text);
  return bar;
}
