"use strict";
// The tab of folders: caption many photos, review their captions, and save these.

const PHOTO = /\.(jpe?g|png|webp|gif|bmp|tiff?|avif)$/i; // what the server decodes
const SIDECAR = /\.xmp$/i;
// Hidden files, and folders of systems and photo programs, as in runtime/folders.py.
const LEFT_ALONE = new RegExp("^(\\..*|@eadir|[#@]recycle|#snapshot|@tmp|@sharebin|@recycle bin"
  + "|@recently-snapshot|@__thumb|trashbox|~snapshot|_gsdata_|\\$recycle\\.bin|recycler|recycled"
  + "|system volume information|__macosx|network trash folder|temporary items"
  + "|thevolumesettingsfolder|thefindbycontentfolder|lost\\+found|found\\.\\d{3}"
  + "|.*\\.(lrdata|lrcat-data|photoslibrary|photolibrary|aplibrary))$", "i");
const THUMBNAIL = 320; // pixels, longer side
// `running` until the caption that is awaited is there, also after it was stopped.
const folder = { rows: [], running: false, stopped: false };
const NOT_KEPT = "This browser keeps no captions: save them before you leave the page.";

// ---- files

// Return the files of a drop, with their paths in the dropped folders; what cannot be
// read has a path alone.
async function droppedFiles(transfer) {
  const entries = [...transfer.items].map((item) => item.webkitGetAsEntry?.()).filter(Boolean);
  const found = [];
  for (const entry of entries) await walk(entry, found);
  return found;
}

async function walk(entry, found) {
  if (LEFT_ALONE.test(entry.name)) return;
  const path = entry.fullPath.slice(1);
  if (entry.isFile) {
    const file = await new Promise((done) => entry.file(done, () => done(null)));
    found.push(file ? { file, path } : { path });
    return;
  }
  const reader = entry.createReader();
  for (;;) { // a part of the entries at a time
    const inside = await new Promise((done) => reader.readEntries(done, () => done(null)));
    if (!inside) found.push({ path }); // no permission, or it was removed
    if (!inside?.length) return;
    for (const one of inside) await walk(one, found);
  }
}

// Add the photos among some files to the list, and caption them.
function addFiles(files) {
  const readable = files.filter(({ file }) => file);
  const unreadable = files.length - readable.length;
  const named = readable.filter(({ path }) => !path.split("/").some((part) => LEFT_ALONE.test(part)));
  const paths = named.map(({ path }) => path.toLowerCase());
  const sidecars = new Set(paths.filter((path) => SIDECAR.test(path)));
  const photos = named.filter(({ path }) => PHOTO.test(path));
  const present = new Map(folder.rows.map((row) => [row.path, row]));
  const added = photos.filter(({ file, path }) => !isCaptioned(present.get(path), file));
  const replaced = new Set(added.map(({ path }) => path));
  folder.rows = folder.rows.filter(({ path }) => !replaced.has(path));
  for (const { file, path } of added.sort((a, b) => a.path.localeCompare(b.path))) {
    const lower = path.toLowerCase();
    const described = [lower, lower.replace(/\.[^.]*$/, "")].some((p) => sidecars.has(`${p}.xmp`));
    folder.rows.push(makeRow({ file, path, described, state: "waiting" }));
  }
  const others = named.length - photos.length - sidecars.size;
  $("folder-note").textContent = added.length ? "" : "No further photos were found there.";
  if (others > 0) $("folder-note").textContent += ` ${counted(others, "other file")} ignored.`;
  if (unreadable) {
    $("folder-note").textContent += ` ${counted(unreadable, "item")} could not be read.`;
  }
  showReview();
  captionAll();
}

// Whether a row has the caption of a file: of the same photo, by a model that is served.
function isCaptioned(row, file) {
  if (!row) return false;
  if (row.edited || row.state === "waiting") return true;
  return row.size === file.size && row.changed === file.lastModified
    && row.state === "captioned" && row.answer.model in models;
}

function showReview() {
  $("folder-invitation").classList.toggle("small", folder.rows.length > 0);
  $("review").hidden = !folder.rows.length;
  arrange();
}

function counted(count, noun) {
  return `${count} ${noun}${count === 1 ? "" : "s"}`;
}

// ---- rows

// Build the elements of a row; `state` is waiting, captioned or failed.
function makeRow(row) {
  const element = $("row-template").content.firstElementChild.cloneNode(true);
  const part = (name) => element.querySelector(name);
  Object.assign(row, {
    element, text: part("textarea"), approved: part("input"), about: part(".about"),
    tags: part(".tags"),
  });
  row.edited ??= false;
  if (row.file) Object.assign(row, { size: row.file.size, changed: row.file.lastModified });
  part(".name").textContent = row.path;
  row.text.setAttribute("aria-label", `Caption of ${row.path}`);
  row.approved.setAttribute("aria-label", `Approve the caption of ${row.path}`);
  row.text.addEventListener("input", () => {
    row.edited = row.text.value.trim() !== row.answer.sentence;
    row.approved.checked = row.edited || row.approved.checked;
    showRow(row);
    reviewed(row);
  });
  row.approved.addEventListener("change", () => reviewed(row));
  part(".copy").addEventListener("click", async () => {
    await copyText(row.text.value, part(".copy"));
    $("folder-status").textContent = `Copied the caption of ${row.path}.`;
  });
  showThumbnail(row, part("img"));
  showRow(row);
  return row;
}

async function showThumbnail(row, image) {
  image.alt = row.path;
  if (row.thumbnail) image.src = row.thumbnail;
  if (!row.file) return;
  try {
    const whole = await createImageBitmap(row.file);
    const share = Math.min(1, THUMBNAIL / Math.max(whole.width, whole.height));
    const canvas = document.createElement("canvas");
    canvas.width = Math.max(1, Math.round(whole.width * share));
    canvas.height = Math.max(1, Math.round(whole.height * share));
    canvas.getContext("2d").drawImage(whole, 0, 0, canvas.width, canvas.height);
    whole.close();
    row.thumbnail = canvas.toDataURL("image/jpeg", 0.8);
    image.src = row.thumbnail;
    keepRow(row);
  } catch (error) {
    image.remove(); // the server may still read it
  }
}

function showRow(row) {
  const { element, state, answer, edited } = row;
  element.dataset.state = state;
  element.setAttribute("aria-busy", String(state === "waiting"));
  for (const control of element.querySelectorAll("textarea, input, button")) {
    control.disabled = state !== "captioned";
  }
  element.dataset.word = answer?.confidence_word || "";
  row.about.textContent = {
    waiting: "Waiting …", failed: row.error, captioned: answer && inWords(answer),
  }[state];
  row.tags.textContent = answer ? tagsInWords(answer) : "";
  if (edited) row.about.textContent = "Edited by you";
  if (row.described) row.about.textContent += "; its XMP file stays as it is";
  else if (answer?.described) row.about.textContent += "; a person described it, which stays";
}

// ---- captions

async function captionAll() {
  folder.stopped = false;
  if (folder.running) return; // a second loop would caption the same rows
  folder.running = true;
  $("folder-stop").hidden = false;
  const start = performance.now();
  let done = 0;
  for (let row; !folder.stopped && (row = folder.rows.find(({ state }) => state === "waiting")); done++) {
    await captionRow(row);
    showRow(row);
    const left = folder.rows.filter(({ state }) => state === "waiting").length;
    const seconds = Math.ceil((left * (performance.now() - start)) / 1000 / (done + 1));
    showProgress(left, left ? `, about ${counted(seconds, "second")} left` : "");
  }
  folder.running = false;
  $("folder-stop").hidden = true;
  arrange();
}

async function captionRow(row) {
  const form = new FormData();
  form.set("photo", row.file, row.file.name);
  form.set("model", $("model").value);
  const onWait = (seconds) => showProgress(null, `; the queue is full, retrying in ${seconds} s`);
  try {
    row.answer = await askServer("caption", { method: "POST", body: form }, () => true, onWait);
    delete row.answer.attention; // large, and not shown here
    row.text.value = row.answer.sentence;
    row.state = "captioned";
    keepRow(row);
  } catch (error) {
    row.error = error.message;
    row.state = "failed";
  }
}

function showProgress(left, rest) {
  const count = folder.rows.length;
  const done = left === null ? $("folder-progress").value : count - left;
  $("folder-progress").max = count;
  $("folder-progress").value = done;
  $("folder-progress-text").textContent = `${done} of ${counted(count, "photo")}${rest}`;
}

// ---- review

// Sort and filter the list as the controls say.
function arrange() {
  const words = $("folder-search").value.toLowerCase().split(/\s+/);
  const value = ({ answer }) => answer?.confidence ?? -1;
  const orders = {
    name: (a, b) => a.path.localeCompare(b.path),
    doubtful: (a, b) => value(a) - value(b),
    certain: (a, b) => value(b) - value(a),
  };
  const shown = [...folder.rows].sort(orders[$("folder-sort").value]);
  for (const row of shown) {
    const word = row.answer?.confidence_word || "";
    const text = `${row.path} ${row.text.value} ${word} ${row.tags.textContent}`.toLowerCase();
    row.element.hidden = !words.every((word) => text.includes(word));
  }
  $("rows").replaceChildren(...shown.map(({ element }) => element));
  showProgress(folder.rows.filter(({ state }) => state === "waiting").length, "");
  countApproved();
}

function approvedRows() {
  return folder.rows.filter(({ state, approved }) => state === "captioned" && approved.checked);
}

function countApproved() {
  const count = approvedRows().length;
  $("approved").textContent = `${counted(count, "caption")} approved`;
  for (const id of ["save-csv", "save-xmp"]) $(id).disabled = !count;
}

function approveShown() {
  for (const row of folder.rows) {
    if (row.state === "captioned" && !row.element.hidden && !row.approved.checked) {
      row.approved.checked = true;
      reviewed(row);
    }
  }
}

// A person has edited, approved or rejected the caption of a row.
function reviewed(row) {
  row.saved = false;
  keepRow(row);
  countApproved();
}

// ---- what the browser keeps

// What the browser keeps of a row; the photo itself stays where it is.
function recordOf({ path, size, changed, described, answer, text, edited, approved, thumbnail }) {
  return {
    path, size, changed, described, answer, edited, thumbnail,
    text: text.value, approved: approved.checked,
  };
}

async function keepRow(row) {
  if (row.state !== "captioned" || row.saved || !folder.rows.includes(row)) return;
  await whileKept(() => keepRecord(recordOf(row)));
}

// Run a function of the store; without a store the page says that nothing is kept.
async function whileKept(use) {
  try {
    return await use();
  } catch (error) { // of a private window, or a full disk
    $("folder-kept").textContent = NOT_KEPT;
    return null;
  }
}

async function restoreRows() {
  const records = (await whileKept(keptRecords)) ?? [];
  const present = new Set(folder.rows.map(({ path }) => path)); // dropped meanwhile
  for (const { text, approved, ...kept } of records) {
    if (present.has(kept.path)) continue;
    const row = makeRow({ ...kept, state: "captioned" });
    row.text.value = text;
    row.approved.checked = approved;
    folder.rows.push(row);
  }
  if (!records.length) return;
  $("folder-note").textContent = `${counted(records.length, "caption")} from your last visit. `
    + "Choose the folder again to caption its other photos.";
  showReview();
}

async function discardAll() {
  if (!confirm(`Discard ${counted(folder.rows.length, "caption")}?`)) return;
  folder.stopped = true;
  folder.rows = [];
  await whileKept(forgetAllRecords);
  $("folder-note").textContent = $("folder-status").textContent = "";
  showError("folder-error", "");
  showReview();
}

// Ask before the page is left with captions that are in no file.
function warnOnLeaving(event) {
  const isOpen = ({ state, saved }) => state === "waiting" || (state === "captioned" && !saved);
  if (!folder.rows.some(isOpen)) return;
  event.preventDefault();
  event.returnValue = true; // for browsers before 2024
}

async function saveReview(form, name) {
  const isKept = ({ described, answer }) => form === "xmp" && (described || answer.described);
  const rows = approvedRows().filter((row) => !isKept(row));
  const kept = approvedRows().length - rows.length;
  const captions = rows.map(({ path, text, edited, answer }) => ({
    path, edited, sentence: text.value.trim(), confidence: answer.confidence, model: answer.model,
    tags: (answer.tags ?? []).map(({ name }) => name),
  }));
  const body = JSON.stringify({ form, captions });
  const headers = { "Content-Type": "application/json" };
  showError("folder-error", "");
  try {
    const response = await fetch("review", { method: "POST", headers, body });
    if (!response.ok) throw new Error((await response.json()).error);
    save(await response.blob(), name);
    // Words that were edited while the server wrote the file are not in it.
    const written = rows.filter(({ text }, k) => text.value.trim() === captions[k].sentence);
    for (const row of written) row.saved = true;
    await whileKept(() => forgetRecords(written.map(({ path }) => path)));
    $("folder-status").textContent = `Saved ${counted(rows.length, "caption")} as ${name}.`
      + (kept ? ` ${counted(kept, "photo")} with an XMP file or a description left out.` : "");
  } catch (error) {
    showError("folder-error", error.message || "The server does not respond; is it running?");
  }
}

function startFolder() {
  for (const id of ["files", "folder-files"]) {
    $(id).addEventListener("change", () => {
      addFiles([...$(id).files].map((file) => ({ file, path: file.webkitRelativePath || file.name })));
      $(id).value = "";
    });
  }
  $("folder-sort").addEventListener("change", arrange);
  $("folder-search").addEventListener("input", arrange);
  $("approve-shown").addEventListener("click", approveShown);
  $("folder-stop").addEventListener("click", () => { folder.stopped = true; });
  $("folder-discard").addEventListener("click", discardAll);
  window.addEventListener("beforeunload", warnOnLeaving);
  $("save-csv").addEventListener("click", () => saveReview("csv", "captions.csv"));
  $("save-xmp").addEventListener("click", () => saveReview("xmp", "captions-xmp.zip"));
  addTab("folder");
  restoreRows();
}

// Take the files of a drop or a paste: one photo into its tab, more into the list.
async function takeFiles(event, transfer) {
  const [first] = transfer.files;
  if (!first) return;
  event.preventDefault();
  const files = await droppedFiles(transfer);
  if (files.length > 1 || !$("folder").hidden || files[0]?.path.includes("/")) {
    selectTab("folder");
    addFiles(files.length ? files : [{ file: first, path: first.name || "pasted.png" }]);
  } else {
    selectTab("photos");
    openPhoto(first, first.name || "pasted.png");
  }
}
