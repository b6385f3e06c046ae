"use strict";
// The tab of words: a crop or a drawing in, its word out, and where the model looked for
// each character. It is shown if the server has the model.

const READING_DELAY = 700; // milliseconds between the last stroke and the request
const WORD_INK = { colour: "#111", width: 9 }; // in pixels of the pad
const PAPER = "#f4f1e8";
const WIDEST_GAP = 0.4; // of the height of a drawing, between two letters
const MARGIN = 12; // pixels of the pad around a drawn word
const CROP_WIDTH = 600; // pixels; 96 % of it, which attention covers, is a whole number
const reading = {
  crop: null, // {blob, name, image}, what is read
  answer: null, // answer of the server for it
  selected: -1, // number of the character shown, -1 for the whole crop
  ink: null, // [left, top, right, bottom] of what is drawn
  delay: null, // timer of the request for a drawing
  latest: 0, // number of the latest request; answers to earlier ones are dropped
};

// ---- display

function showCharacter(k) {
  const { crop, answer } = reading;
  const canvas = $("crop");
  reading.selected = k;
  canvas.width = CROP_WIDTH;
  const height = (CROP_WIDTH * crop.image.naturalHeight) / crop.image.naturalWidth;
  canvas.height = Math.round(Math.min(Math.max(height, 80), 400));
  const whole = [0, 0, canvas.width, canvas.height];
  const shown = answer?.attention && k >= 0;
  drawPhoto(canvas.getContext("2d"), crop.image, whole, shown ? answer : null, k);
  const veiled = shown ? `; bright is the attention for ${answer.word[k]}` : "";
  canvas.setAttribute("aria-label", `The crop ${crop.name}${veiled}`);
  [...$("characters").children].forEach((button, i) => {
    button.setAttribute("aria-pressed", String(i === k));
    button.tabIndex = i === Math.max(k, 0) ? 0 : -1;
  });
  $("character-detail").textContent = k >= 0 && answer
    ? `${answer.word[k]}: character ${k + 1} of ${answer.word.length},   p ${percentOf(k)} %`
    : "";
}

function percentOf(k) {
  return Math.round(100 * Math.exp(reading.answer.character_log_probs[k]));
}

function showWord() {
  const { answer } = reading;
  $("characters").replaceChildren(...[...answer.word].map((character, k) => {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = character;
    button.setAttribute("aria-label", `${character}, ${percentOf(k)} percent`);
    // Not "pointerenter", which also comes when a character appears under a resting pointer.
    button.addEventListener("pointermove", (event) => {
      if (event.pointerType === "mouse") showCharacter(k);
    });
    for (const kind of ["click", "focus"]) button.addEventListener(kind, () => showCharacter(k));
    return button;
  }));
  const p = Math.exp(answer.log_prob).toFixed(3);
  $("reading-result").textContent = answer.word
    ? `${answer.word}: p ${p}, ${answer.seconds.toFixed(2)} s` : "No word was found.";
  showCharacter(-1);
}

function reportReading(status, error = "") {
  $("reading-result").textContent = status;
  showError("reading-error", error);
}

// ---- requests

async function readCrop(blob, name) {
  const own = ++reading.latest;
  reading.answer = null;
  $("characters").replaceChildren();
  $("character-detail").textContent = "";
  reportReading("Reading …");
  try {
    const image = new Image();
    image.src = URL.createObjectURL(blob);
    await image.decode().catch(() => {
      URL.revokeObjectURL(image.src);
      throw new Error(`${name}: not a photo that this browser can display; choose another.`);
    });
    if (own !== reading.latest) return URL.revokeObjectURL(image.src);
    if (reading.crop) URL.revokeObjectURL(reading.crop.image.src);
    reading.crop = { blob, name, image };
    $("crop-figure").hidden = false;
    showCharacter(-1);
    const form = new FormData();
    form.set("photo", blob, name);
    const found = await askServer("read", { method: "POST", body: form }, () => own === reading.latest);
    if (own !== reading.latest) return;
    reading.answer = found;
    showWord();
  } catch (error) {
    if (own === reading.latest) reportReading("", error.message);
  }
}

// ---- drawing

function clearPaper() {
  clearTimeout(reading.delay);
  reading.ink = null;
  const context = $("paper").getContext("2d");
  context.fillStyle = PAPER;
  context.fillRect(0, 0, $("paper").width, $("paper").height);
}

function extendInk([x, y]) {
  const [left, top, right, bottom] = reading.ink || [x, y, x, y];
  reading.ink = [Math.min(left, x), Math.min(top, y), Math.max(right, x), Math.max(bottom, y)];
}

// Read what is drawn, cut out with a margin, as a crop is.
function readDrawing() {
  const paper = $("paper");
  const [x0, y0] = reading.ink.slice(0, 2).map((x) => Math.max(x - MARGIN, 0));
  const x1 = Math.min(reading.ink[2] + MARGIN, paper.width);
  const y1 = Math.min(reading.ink[3] + MARGIN, paper.height);
  const cut = document.createElement("canvas");
  [cut.width, cut.height] = [Math.ceil(x1 - x0), Math.ceil(y1 - y0)];
  cut.getContext("2d").drawImage(paper, -x0, -y0);
  withoutGaps(cut).toBlob((blob) => readCrop(blob, "drawing.png"));
}

// Shorten wide gaps of a drawing: for the model, which reads one word, they end it.
function withoutGaps(cut) {
  const { width, height } = cut;
  const { data } = cut.getContext("2d").getImageData(0, 0, width, height);
  const isInk = (x) => Array.from({ length: height }, (_, y) => data[4 * (y * width + x)])
    .some((red) => Math.abs(red - data[0]) > 60);
  const kept = []; // columns
  for (let x = 0, gap = 0; x < width; x++) {
    gap = isInk(x) ? 0 : gap + 1;
    if (gap <= WIDEST_GAP * height) kept.push(x);
  }
  const narrow = document.createElement("canvas");
  [narrow.width, narrow.height] = [kept.length, height];
  const context = narrow.getContext("2d");
  kept.forEach((x, k) => context.drawImage(cut, x, 0, 1, height, k, 0, 1, height));
  return narrow;
}

function strokeEnded() {
  clearTimeout(reading.delay);
  reading.delay = setTimeout(readDrawing, READING_DELAY);
}

// ---- controls

// Read a file that is dropped or pasted while the tab is open, in place of a caption.
function takeFile(event, file) {
  if ($("reading").hidden || !file) return;
  event.preventDefault();
  event.stopImmediatePropagation();
  $("drop").classList.remove("over");
  clearPaper();
  readCrop(file, file.name || "pasted.png");
}

function startReading() {
  clearPaper();
  attachPen($("paper"), WORD_INK, strokeEnded, extendInk);
  $("clear-paper").addEventListener("click", clearPaper);
  onFile($("crop-file"), (file) => {
    clearPaper();
    readCrop(file, file.name);
  });
  document.addEventListener("drop", (event) => takeFile(event, event.dataTransfer.files[0]), true);
  document.addEventListener("paste", (event) => takeFile(event, event.clipboardData.files[0]), true);
  moveWithKeys($("characters"), () => reading.selected);
  $("characters").addEventListener("pointerleave", () => {
    if (!$("characters").contains(document.activeElement)) showCharacter(-1);
  });
  addTab("reading");
}

onStart(startReading);
