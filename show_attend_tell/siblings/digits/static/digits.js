"use strict";
// The tab of digits: RAM classifies what a visitor draws, DRAW draws. It is shown if the
// server has the two models.

const GLIMPSE_DURATION = 500; // milliseconds
const STEP_DURATION = 250;
const DIGIT_INK = { colour: "#fff", width: 22 }; // about two pixels of a digit of 28
const digits = {
  photo: null, // what is classified
  seed: 0, // of the first place
  seen: null, // answer of the server for it
  glimpse: -1, // number of the glimpse shown
  drawing: null, // answer of the server
  latest: 0, // number of the latest request; answers to earlier ones are dropped
  timers: {}, // of the animations that run, by name
};

// ---- requests

async function classifyDigit() {
  const own = ++digits.latest;
  const form = new FormData();
  form.set("photo", digits.photo, "digit.png");
  form.set("seed", String(digits.seed));
  stopAnimation("glimpses"); // of an earlier digit
  $("digit-result").textContent = "Looking …";
  showError("digit-error", "");
  try {
    const found = await askServer(
      "digits/classify", { method: "POST", body: form }, () => own === digits.latest);
    if (own !== digits.latest) return;
    digits.seen = found;
    showGlimpses();
  } catch (error) {
    if (own !== digits.latest) return;
    clearAnswer();
    showError("digit-error", error.message);
  }
}

async function requestDrawing() {
  $("another").disabled = true;
  showError("drawing-error", "");
  try {
    const seed = Math.floor(Math.random() * 2 ** 31);
    digits.drawing = await askServer(`digits/draw?seed=${seed}`);
    $("step").max = digits.drawing.canvases.length - 1;
    $("play-drawing").disabled = $("classify-drawing").disabled = false;
    playDrawing();
  } catch (error) {
    showError("drawing-error", error.message);
  }
  $("another").disabled = false;
}

// ---- animation

// Show numbers from 0 to `last`, one after another; the last one alone without motion.
function animate(name, last, milliseconds, show) {
  stopAnimation(name);
  let k = reducedMotion.matches ? last : 0;
  show(k);
  if (k === last) return;
  digits.timers[name] = setInterval(() => {
    k += 1;
    show(k);
    if (k === last) stopAnimation(name);
  }, milliseconds);
}

function stopAnimation(name) {
  clearInterval(digits.timers[name]);
}

function playGlimpses() {
  animate("glimpses", digits.seen.glimpses.length - 1, GLIMPSE_DURATION, showGlimpse);
}

function playDrawing() {
  animate("drawing", digits.drawing.canvases.length - 1, STEP_DURATION, showStep);
}

// ---- RAM

function bestOf(probabilities) {
  const best = probabilities.indexOf(Math.max(...probabilities));
  return [best, Math.round(100 * probabilities[best])];
}

function showGlimpses() {
  $("glimpses").replaceChildren(...digits.seen.glimpses.map((glimpse, k) => {
    const button = document.createElement("button");
    const canvas = document.createElement("canvas");
    [canvas.width, canvas.height] = [glimpse.seen[0].length, glimpse.seen.length];
    drawPixels(canvas, glimpse.seen);
    const text = document.createElement("span");
    const [label, percent] = bestOf(glimpse.probabilities);
    text.textContent = `${label}: ${percent} %`;
    button.type = "button";
    button.setAttribute("aria-label", `Glimpse ${k + 1}: ${label}, ${percent} percent`);
    button.append(canvas, text);
    for (const kind of ["click", "focus"]) {
      button.addEventListener(kind, () => { stopAnimation("glimpses"); showGlimpse(k); });
    }
    return button;
  }));
  $("play-glimpses").disabled = $("elsewhere").disabled = false;
  $("classes").hidden = $("glimpses-note").hidden = false;
  playGlimpses();
}

function showGlimpse(k) {
  const { digit, glimpses } = digits.seen;
  const { probabilities } = glimpses[k];
  const [label, percent] = bestOf(probabilities);
  digits.glimpse = k;
  drawPath($("path"), digit, glimpses, k);
  const text = `After glimpse ${k + 1} of ${glimpses.length}: ${label}, ${percent} %`;
  $("path").setAttribute("aria-label", `The digit and the path of glimpses. ${text}`);
  $("digit-result").textContent = text;
  $("classes").replaceChildren(...probabilities.map((p, i) => barOf(i, p, i === label)));
  $("classes").setAttribute("aria-label", "Probabilities: " + probabilities.map(
    (p, i) => `${i}, ${Math.round(100 * p)} percent`).join("; "));
  [...$("glimpses").children].forEach((button, i) => {
    button.setAttribute("aria-pressed", String(i === k));
    button.tabIndex = i === k ? 0 : -1;
  });
}

function paintBlack(canvas) {
  const context = canvas.getContext("2d");
  context.fillStyle = "#000";
  context.fillRect(0, 0, canvas.width, canvas.height);
}

// Remove what was found of a digit; the digit itself remains.
function clearAnswer() {
  stopAnimation("glimpses");
  digits.seen = null;
  paintBlack($("path"));
  $("path").setAttribute("aria-label", "No digit yet");
  $("glimpses").replaceChildren();
  $("digit-result").textContent = "";
  showError("digit-error", "");
  $("play-glimpses").disabled = $("elsewhere").disabled = true;
  $("classes").hidden = $("glimpses-note").hidden = true;
}

function clearPad() {
  digits.latest += 1; // an answer on its way is for what was cleared
  digits.photo = null;
  paintBlack($("pad"));
  clearAnswer();
}

function classifyCanvas(canvas) {
  canvas.toBlob((blob) => {
    digits.photo = blob;
    classifyDigit();
  });
}

// ---- DRAW

function showStep(step) {
  const { canvases, windows } = digits.drawing;
  $("step").value = step;
  $("step-value").textContent = `${step} of ${canvases.length - 1}`;
  drawStep($("drawing"), digits.drawing, step);
  $("drawing-note").textContent = step === 0
    ? "The first canvas is learned, the same for every digit."
    : windows.length ? "The frame is the window that wrote last." : "The whole canvas is written.";
  $("drawing").setAttribute("aria-label", `The drawing after step ${step}`);
}

// Classify the last canvas, without its window.
function classifyDrawing() {
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [$("pad").width, $("pad").height];
  clearPad();
  drawPixels(canvas, digits.drawing.canvases.at(-1));
  $("pad").getContext("2d").drawImage(canvas, 0, 0);
  // On a phone the answer is above what is seen.
  const behavior = reducedMotion.matches ? "auto" : "smooth";
  $("ram-title").scrollIntoView({ block: "nearest", behavior });
  classifyCanvas(canvas);
}

// ---- controls

function wireDigits() {
  attachPen($("pad"), DIGIT_INK, () => classifyCanvas($("pad")));
  $("clear").addEventListener("click", clearPad);
  $("play-glimpses").addEventListener("click", playGlimpses);
  $("elsewhere").addEventListener("click", () => { digits.seed += 1; classifyDigit(); });
  onFile($("digit-file"), (file) => {
    clearPad();
    digits.photo = file;
    classifyDigit();
  });
  moveWithKeys($("glimpses"), () => digits.glimpse);
  $("step").addEventListener("input", () => {
    stopAnimation("drawing");
    showStep(Number($("step").value));
  });
  $("another").addEventListener("click", requestDrawing);
  $("play-drawing").addEventListener("click", playDrawing);
  $("classify-drawing").addEventListener("click", classifyDrawing);
}

function startDigits() {
  wireDigits();
  clearPad();
  addTab("digits", () => { if (!digits.drawing) requestDrawing(); });
}

onStart(startDigits);
