"use strict";

const $ = (id) => document.getElementById(id);
const WORD_DURATION = 650; // milliseconds
const reducedMotion = matchMedia("(prefers-reduced-motion: reduce)");
const touch = matchMedia("(pointer: coarse), (max-width: 40rem)"); // as in demo.css
const SMALLEST = 8; // pixels of the screen, side of a region

let photo = null; // {blob, name, image}
let answer = null;
let selected = -1; // index of the word shown, -1 for the whole photo
let timer = null;
let opening = 0; // number of the photo opened last; those before it are dropped
let latest = 0; // number of the latest request; answers to earlier ones are dropped
const models = {}; // the server's models with their own settings, by name
let seed = 0;
let drag = null; // {start, end}, points of the photo as fractions, while marking
let marked = null; // the region whose caption is awaited, as fractions

// ---- display

function show(k) {
  selected = k;
  const canvas = $("view");
  const most = 960 / Math.max(photo.image.width, photo.image.height);
  canvas.width = Math.round(photo.image.width * Math.min(1, most));
  canvas.height = Math.round(photo.image.height * Math.min(1, most));
  const small = Math.max(1, 480 / canvas.width); // a small photo is enlarged
  canvas.width = Math.round(canvas.width * small);
  canvas.height = Math.round(canvas.height * small);
  const alpha = answer && k >= 0 ? answer.attention[k] : null;
  const whole = [0, 0, canvas.width, canvas.height];
  drawPhoto(canvas.getContext("2d"), photo.image, whole, answer, k);
  const region = drag ? boxOf(drag) : marked ?? regionOf(answer);
  if (region) drawRegion(canvas.getContext("2d"), whole, region);
  const word = alpha ? `; bright is the attention for the word ${answer.words[k]}` : "";
  canvas.setAttribute("aria-label", `The photo ${photo.name}${word}`);
  [...$("words").children].forEach((button, i) => {
    button.setAttribute("aria-pressed", String(i === k));
    button.tabIndex = i === Math.max(k, 0) ? 0 : -1;
  });
  $("detail").textContent = alpha
    ? `${answer.words[k]}: word ${k + 1} of ${answer.words.length},   ${numbersOf(answer, k)}`
    : answer ? hint() : "";
}

function hint() {
  return touch.matches
    ? "Tap a word to see its attention." : "Hover over the words, or use the arrow keys.";
}

function addWord(k) {
  const button = document.createElement("button");
  button.type = "button";
  button.textContent = k ? answer.words[k] : answer.sentence.slice(0, answer.words[0].length);
  const p = Math.round(100 * Math.exp(answer.word_log_probs[k]));
  button.setAttribute("aria-label", `${answer.words[k]}, ${p} percent`);
  // Not "pointerenter", which also comes when a word appears under a pointer at rest.
  button.addEventListener("pointermove", (event) => {
    if (event.pointerType === "mouse" && !timer && selected !== k) show(k);
  });
  button.addEventListener("click", () => { stop(); show(k); });
  button.addEventListener("focus", () => { if (!timer) show(k); });
  $("words").append(button);
}

function stop() {
  clearInterval(timer);
  timer = null;
  while (answer && $("words").children.length < answer.words.length) {
    addWord($("words").children.length);
  }
  $("play").textContent = "Play";
}

function play() {
  stop();
  $("words").replaceChildren();
  if (reducedMotion.matches || !answer.words.length) {
    stop();
    show(-1);
    return;
  }
  $("play").textContent = "Stop";
  const next = () => {
    const k = $("words").children.length;
    if (k === answer.words.length) {
      stop();
      show(-1);
      return;
    }
    addWord(k);
    show(k);
  };
  timer = setInterval(next, WORD_DURATION);
  next();
}

function showAnswer() {
  $("invitation").hidden = true;
  $("result").hidden = false;
  $("announced").textContent = answer.sentence || "The caption is empty.";
  $("text").value = answer.sentence;
  $("tags").textContent = tagsInWords(answer, true);
  report(aboutAnswer());
  $("others").replaceChildren(...answer.alternatives.map((other) => {
    const row = document.createElement("tr");
    for (const text of [other.sentence, other.log_prob.toFixed(2), other.score.toFixed(2)]) {
      row.insertCell().textContent = text;
    }
    return row;
  }));
  $("others-box").hidden = !answer.alternatives.length;
}

let confidenceLimits = []; // the least confidence of each word

// The confidence of an answer in words and as a number, empty if it is unknown.
function inWords({ confidence, confidence_word: word, region }) {
  if (region) return "a region's caption has no confidence";
  return word ? `${word}, confidence ${confidenceFigures(confidence, confidenceLimits)}` : "";
}

// The tags of an answer, with their confidence or without; empty if there are none.
function tagsInWords({ tags }, numbers = false) {
  if (!tags?.length) return "";
  const figures = (p) => (numbers ? ` ${p.toFixed(2)}` : "");
  return `Tags: ${tags.map(({ name, confidence }) => name + figures(confidence)).join(", ")}`;
}

// What is known about the caption shown, empty without one.
function aboutAnswer() {
  if (!answer?.words.length) return answer ? "The caption is empty." : "";
  return [inWords(answer), `log p ${answer.log_prob.toFixed(2)}`, `${answer.wait.toFixed(1)} s`]
    .filter(Boolean).join(", ");
}

function report(status, error) {
  $("status").textContent = status;
  $("error").textContent = error || "";
  $("error").hidden = !error;
}

// ---- region

function boxOf({ start, end }) {
  const [left, right] = [start[0], end[0]].sort((a, b) => a - b);
  const [top, bottom] = [start[1], end[1]].sort((a, b) => a - b);
  return [left, top, right, bottom];
}

// The point of an event as fractions of the photo.
function pointOf(event) {
  const { left, top, width, height } = $("view").getBoundingClientRect();
  const inside = (x) => Math.min(Math.max(x, 0), 1);
  return [inside((event.clientX - left) / width), inside((event.clientY - top) / height)];
}

function setMarking(on) {
  $("mark").setAttribute("aria-pressed", String(on));
  $("view").classList.toggle("marking", on);
  if (!on) return;
  stop();
  show(-1); // the whole photo is bright
  $("detail").textContent = "Drag a rectangle on the photo.";
}

function setRegion(text) {
  $("region").value = text;
  $("whole").hidden = !text;
}

function startDrag(event) {
  const marking = $("view").classList.contains("marking");
  // Without the button a finger scrolls the page, and a mouse marks.
  if (!photo || event.button || !(marking || event.pointerType === "mouse")) return;
  event.preventDefault();
  $("view").setPointerCapture(event.pointerId);
  stop();
  drag = { start: pointOf(event), end: pointOf(event) };
}

function moveDrag(event) {
  if (!drag) return;
  drag.end = pointOf(event);
  show(-1);
}

function endDrag(event) {
  if (!drag) return;
  drag.end = pointOf(event);
  const { width, height } = $("view").getBoundingClientRect();
  const [x0, y0, x1, y1] = boxOf(drag);
  drag = null;
  const small = (x1 - x0) * width < SMALLEST || (y1 - y0) * height < SMALLEST;
  if (event.type === "pointerup" && !small) {
    const { naturalWidth: wide, naturalHeight: high } = photo.image;
    setRegion([x0 * wide, y0 * high, x1 * wide, y1 * high].map(Math.round).join(","));
    marked = [x0, y0, x1, y1];
    setMarking(false);
    requestCaption();
  }
  show(-1);
}

// ---- requests

function requestForm() {
  const form = new FormData();
  const method = new FormData($("settings")).get("method");
  form.set("photo", photo.blob, photo.name);
  form.set("model", $("model").value);
  form.set("method", method);
  form.set("locations", $("locations").value);
  form.set("seed", String(seed));
  form.set("region", $("region").value);
  if (method === "beam") form.set("beam", $("beam").value);
  else form.set("temperature", $("temperature").value);
  return form;
}

async function requestCaption() {
  if (!photo) return;
  const own = ++latest;
  const asked = performance.now();
  stop();
  report("Captioning …");
  const isCurrent = () => own === latest;
  const onWait = (seconds) => report(`The queue is full; retrying in ${seconds} s …`);
  try {
    const form = { method: "POST", body: requestForm() };
    const found = await askServer("caption", form, isCurrent, onWait);
    if (!isCurrent()) return;
    marked = null;
    const isFirst = !answer;
    answer = { ...found, wait: (performance.now() - asked) / 1000 };
    $("again").disabled = false;
    showAnswer();
    // Words of the first caption play; a change of settings or region shows them.
    if (isFirst) return play();
    $("words").replaceChildren();
    stop();
    show(-1);
  } catch (error) {
    if (!isCurrent()) return;
    marked = null;
    report(aboutAnswer(), error.message);
    $("invitation").hidden = Boolean(answer); // the other button is with an answer
  }
}

// Show a photo, or none, without a caption.
function replacePhoto(next) {
  stop();
  latest++; // the answer for the photo before is no longer wanted
  if (photo) URL.revokeObjectURL(photo.image.src);
  photo = next;
  answer = null;
  marked = null;
  setRegion("");
  setMarking(false);
  $("words").replaceChildren();
  $("result").hidden = true;
  $("others-box").hidden = true;
  $("again").disabled = true;
  $("invitation").hidden = Boolean(photo);
  $("view").hidden = !photo;
  $("drop").classList.toggle("full", Boolean(photo));
}

async function openPhoto(blob, name) {
  const own = ++opening;
  const url = URL.createObjectURL(blob);
  const image = new Image();
  image.src = url;
  try {
    await image.decode();
  } catch (error) {
    URL.revokeObjectURL(url);
    if (own !== opening) return;
    replacePhoto(null);
    report("", `${name}: not a photo that this browser can display; choose another.`);
    return;
  }
  if (own !== opening) { // a large photo is decoded later than a small one after it
    URL.revokeObjectURL(url);
    return;
  }
  replacePhoto({ blob, name, image });
  show(-1);
  requestCaption();
}

// Outside of https and localhost a page has no clipboard.
async function copyText(text, button) {
  try {
    await navigator.clipboard.writeText(text);
  } catch (error) {
    const area = document.createElement("textarea");
    area.value = text;
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
    button.focus();
  }
}

function save(blob, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

function saveBesides(blob, ending) {
  save(blob, photo.name.replace(/\.[^.]*$/, "") + ending);
}

// ---- controls

function settingsChanged() {
  const sampled = new FormData($("settings")).get("method") === "sample";
  $("beam-box").hidden = sampled;
  $("temperature-box").hidden = !sampled;
  $("again").hidden = !sampled && $("locations").value !== "sampled";
  $("beam-value").textContent = $("beam").value;
  $("temperature-value").textContent = Number($("temperature").value).toFixed(2);
}

function wire() {
  onFile($("file"), (file) => openPhoto(file, file.name));
  for (const kind of ["dragover", "dragleave", "drop"]) {
    document.addEventListener(kind, (event) => {
      event.preventDefault();
      $("drop").classList.toggle("over", kind === "dragover");
    });
  }
  moveWithKeys($("words"), () => selected, (k) => { stop(); show(k); });
  $("words").addEventListener("pointerleave", () => {
    if (!timer && !$("words").contains(document.activeElement)) show(-1);
  });
  $("settings").addEventListener("submit", (event) => event.preventDefault());
  $("settings").addEventListener("input", settingsChanged);
  $("model").addEventListener("change", useModelSettings); // runs before the form's
  $("settings").addEventListener("change", requestCaption);
  $("view").addEventListener("pointerdown", startDrag);
  $("view").addEventListener("pointermove", moveDrag);
  for (const kind of ["pointerup", "pointercancel"]) $("view").addEventListener(kind, endDrag);
  $("mark").addEventListener("click", () => {
    setMarking($("mark").getAttribute("aria-pressed") === "false");
  });
  $("region").addEventListener("change", () => setRegion($("region").value.trim()));
  $("whole").addEventListener("click", () => { marked = null; setRegion(""); requestCaption(); });
  $("again").addEventListener("click", () => { seed += 1; requestCaption(); });
  $("play").addEventListener("click", () => { if (timer) { stop(); show(-1); } else play(); });
  $("copy").addEventListener("click", async () => {
    await copyText($("text").value, $("copy"));
    $("status").textContent = "Copied.";
  });
  $("save-text").addEventListener("click", () => {
    saveBesides(new Blob([`${$("text").value.trim()}\n`], { type: "text/plain" }), ".txt");
  });
  $("figure").addEventListener("click", () => {
    figureOf(photo.image, answer).toBlob((blob) => saveBesides(blob, "-attention.png"));
  });
  $("json").addEventListener("click", () => {
    const text = JSON.stringify(answer, null, 1);
    saveBesides(new Blob([text], { type: "application/json" }), ".json");
  });
}

// Select the model's own decoding settings, those of the command line.
function useModelSettings() {
  const model = models[$("model").value];
  document.querySelector(`input[name="method"][value="${model.method}"]`).checked = true;
  $("beam").value = model.beam;
  $("temperature").value = model.temperature;
  $("locations").value = model.locations;
  $("locations").disabled = !model.selects_locations; // a Transformer cannot
  seed = model.seed;
  settingsChanged();
}

function startPhotos(about) {
  wire();
  for (const model of about.models) {
    models[model.name] = model;
    $("model").add(new Option(`${model.name} (${model.attention} attention)`, model.name));
  }
  $("model-box").hidden = about.models.length < 2;
  $("beam").max = about.max_beam;
  useModelSettings();
  $("limits").textContent = `At most ${about.megabytes} MB and ${about.megapixels} megapixels.`;
  confidenceLimits = Object.values(about.confidence_words);
  const [likely, unsure] = confidenceLimits;
  $("meaning").textContent = `likely from ${likely}, unsure from ${unsure}, probably wrong below`;
  about.examples.forEach(({ title, note }, number) => {
    const button = document.createElement("button");
    const image = new Image();
    image.src = `examples/${number}`;
    image.alt = title;
    button.type = "button";
    button.append(image);
    if (note) {
      const small = document.createElement("small");
      small.textContent = note;
      button.append(small);
    }
    button.addEventListener("click", async () => {
      let jpeg;
      try {
        jpeg = await (await fetch(image.src)).blob();
      } catch (error) {
        report(aboutAnswer(), "The server does not respond; is it running?");
        return;
      }
      openPhoto(jpeg, `example-${number + 1}.jpg`);
    });
    $("examples").append(button);
  });
  $("examples-box").hidden = !about.examples.length;
}
