// The captioner's page: a photo chosen, dropped or pasted goes to the worker; its words
// come back, and each shows its attention. attention.js and controls.js are those of
// `show-attend-tell demo`.

const root = document.getElementById("captioner");
const part = (name) => root.querySelector(`[data-part="${name}"]`);
const LONGEST = 960; // pixels, side of the drawn photo
const LEAST = 480;

let worker = null; // started by the first photo
let photo = null; // {name, image}
let answer = null;
let latest = 0; // number of the latest photo; answers for earlier ones are dropped

function show(k) {
  const canvas = part("view");
  const { width, height } = photo.image;
  const scale = Math.max(Math.min(1, LONGEST / Math.max(width, height)), Math.min(1, LEAST / width));
  [canvas.width, canvas.height] = [Math.round(width * scale), Math.round(height * scale)];
  const box = [0, 0, canvas.width, canvas.height];
  drawPhoto(canvas.getContext("2d"), photo.image, box, answer, k);
  const word = k < 0 ? "" : `; bright is the attention for the word ${answer.words[k]}`;
  canvas.setAttribute("aria-label", `The photo ${photo.name}${word}`);
  [...part("words").children].forEach((button, i) => {
    button.setAttribute("aria-pressed", String(i === k));
    button.tabIndex = i === Math.max(k, 0) ? 0 : -1;
  });
  if (!answer) return;
  part("detail").textContent = k < 0
    ? `Choose a word to see its attention. Captioned here in ${answer.seconds.toFixed(1)} s.`
    : `${answer.words[k]}: word ${k + 1} of ${answer.words.length},   ${numbersOf(answer, k)}`;
}

function buttonOf(word, k) {
  const button = document.createElement("button");
  button.type = "button";
  button.textContent = k ? word : word[0].toUpperCase() + word.slice(1);
  const percent = Math.round(100 * Math.exp(answer.word_log_probs[k]));
  button.setAttribute("aria-label", `${word}, ${percent} percent`);
  // Not "pointerenter", which also comes when a word appears under a pointer at rest.
  for (const kind of ["pointermove", "click", "focus"]) {
    button.addEventListener(kind, () => show(k));
  }
  return button;
}

function showAnswer(found) {
  answer = found;
  const { confidence, confidence_word: word, confidence_limits: limits } = answer;
  report(answer.words.length
    ? `${word}, confidence ${confidenceFigures(confidence, limits)}` : "The caption is empty.");
  part("announced").textContent = answer.sentence;
  part("words").replaceChildren(...answer.words.map(buttonOf));
  part("others").replaceChildren(...answer.alternatives.map(({ sentence }) => {
    const item = document.createElement("li");
    item.textContent = sentence;
    return item;
  }));
  part("others-box").hidden = !answer.alternatives.length;
  part("result").hidden = false;
  show(-1);
}

function report(status, error = "") {
  part("status").textContent = status;
  part("error").textContent = error;
  part("error").hidden = !error;
  part("loading").hidden = true;
}

function onMessage({ data }) {
  if (data.kind === "progress") {
    part("loading").hidden = data.done === data.total;
    part("progress").value = data.done / data.total;
    const [done, total] = [data.done, data.total].map((bytes) => (bytes / 1e6).toFixed(0));
    part("loaded").textContent = `${done} of ${total} MB`;
  } else if (data.id !== latest) return;
  else if (data.kind === "answer") showAnswer(data.answer);
  else {
    report("", data.text);
    part("invitation").hidden = false;
  }
}

async function openPhoto(blob, name) {
  const id = ++latest;
  let image;
  try {
    image = await createImageBitmap(blob);
  } catch (error) {
    report("", `${name}: not a photo that this browser can display; choose another.`);
    return;
  }
  if (id !== latest) return;
  [photo, answer] = [{ name, image }, null];
  part("words").replaceChildren();
  part("result").hidden = part("invitation").hidden = true;
  part("view").hidden = false;
  part("drop").classList.add("full");
  report("Captioning …");
  part("announced").textContent = "";
  show(-1);
  if (!worker) {
    worker = new Worker(new URL("worker.js", import.meta.url), { type: "module" });
    worker.addEventListener("message", onMessage);
    worker.addEventListener("error", () => report("", "This browser cannot run the captioner."));
  }
  worker.postMessage({ id, blob });
}

function wire() {
  onFile(part("file"), (file) => openPhoto(file, file.name));
  part("example").addEventListener("click", async () => {
    openPhoto(await (await fetch("../images/sheep.jpg")).blob(), "sheep.jpg");
  });
  for (const kind of ["dragover", "dragleave", "drop"]) {
    document.addEventListener(kind, (event) => {
      event.preventDefault();
      part("drop").classList.toggle("over", kind === "dragover");
    });
  }
  document.addEventListener("drop", ({ dataTransfer: { files: [file] } }) => {
    if (file) openPhoto(file, file.name);
  });
  document.addEventListener("paste", ({ clipboardData: { files: [file] } }) => {
    if (file) openPhoto(file, file.name || "pasted.png");
  });
  const buttons = () => [...part("words").children];
  moveWithKeys(part("words"), () => buttons().indexOf(document.activeElement), show);
  part("words").addEventListener("pointerleave", () => {
    if (!buttons().includes(document.activeElement)) show(-1);
  });
  part("copy").addEventListener("click", async () => {
    await navigator.clipboard.writeText(answer.sentence);
    part("detail").textContent = "Copied.";
  });
  part("figure").addEventListener("click", () => {
    figureOf(photo.image, answer).toBlob((blob) => {
      const link = document.createElement("a");
      link.href = URL.createObjectURL(blob);
      link.download = `${photo.name.replace(/\.[^.]*$/, "")}-attention.png`;
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href), 10000);
    });
  });
}

wire();
part("offline").hidden = true;
part("stage").hidden = false;
