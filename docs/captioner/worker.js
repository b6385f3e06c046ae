// Caption photos in a thread of their own, with the models of `export --format onnx`.

import { Calibration } from "./confidence.js";
import { openFiles } from "./loading.js";
import { decode, seenRegion, toSquare } from "./preprocessing.js";
import { beamSearch, repeatedNounsLast, Reranker } from "./search.js";

const SEPARATED = / +(?=(?:'(?:s|re|ve|ll|d|m)|n't|[,;:!?.])(?:\s|$))/g;
let captioner = null; // a promise of {ort, settings, reranker, calibration, sessions}

// ONNX Runtime on the graphics processor needs WebAssembly that can wait for it (JSPI),
// and the encoder rounds to float16.
async function hasGpu() {
  if (!("Suspending" in WebAssembly)) return false;
  const adapter = await navigator.gpu?.requestAdapter().catch(() => null);
  return Boolean(adapter?.features.has("shader-f16"));
}

async function load(gpu) {
  const wasm = `ort-wasm-simd-threaded${gpu ? ".jspi" : ""}`;
  const models = ["encoder.onnx", "decoder.onnx", "reranker.onnx"];
  const progress = (done, total) => postMessage({ kind: "progress", done, total });
  const texts = ["captioner.json", "confidence.json"];
  const open = await openFiles([...texts, `${wasm}.wasm`, ...models], progress);
  const [settings, confidence] = await Promise.all(texts.map(
    async (name) => JSON.parse(new TextDecoder().decode(await open(name)))));
  const ort = await import(gpu ? "./ort.jspi.min.mjs" : "./ort.wasm.min.mjs");
  ort.env.wasm.wasmPaths = { mjs: new URL(`${wasm}.mjs`, import.meta.url).href };
  ort.env.wasm.wasmBinary = (await open(`${wasm}.wasm`)).buffer;
  const sessions = {};
  for (const file of models) {
    const name = file.split(".")[0];
    if (name === "reranker" && !settings.ngrams) continue;
    const executionProviders = gpu && name === "encoder" ? ["webgpu", "wasm"] : ["wasm"];
    sessions[name] = await ort.InferenceSession.create(await open(file), { executionProviders });
  }
  const { side, ngrams, idf, decoding } = settings;
  const black = new ort.Tensor("uint8", new Uint8Array(side * side * 3), [side, side, 3]);
  await sessions.encoder.run({ square: black }); // compiles shaders, or fails before a photo
  const reranker = ngrams && new Reranker(ngrams, idf, decoding.rerank_weight);
  return { ort, settings, reranker, calibration: new Calibration(confidence), sessions };
}

// Load the captioner for the graphics processor; where that fails, for the processor.
async function loadAny() {
  if (!(await hasGpu())) return load(false);
  return load(true).catch(() => load(false));
}

// Return the inputs of a model among named tensors.
function inputsOf(session, tensors) {
  return Object.fromEntries(session.inputNames.map((name) => [name, tensors[name]]));
}

// Return the rows of a tensor at indices of its first axis.
function pick(ort, tensor, rows) {
  const size = tensor.dims.slice(1).reduce((product, n) => product * n, 1);
  const data = new Float32Array(rows.length * size);
  rows.forEach((row, k) => data.set(tensor.data.subarray(row * size, (row + 1) * size), k * size));
  return new ort.Tensor("float32", data, [rows.length, ...tensor.dims.slice(1)]);
}

async function captionsOf(square) {
  const { ort, settings, reranker, calibration, sessions } = await captioner;
  const { side, decoding } = settings;
  const pixels = new ort.Tensor("uint8", new Uint8Array(square), [side, side, 3]);
  const photo = await sessions.encoder.run({ square: pixels });
  let state = Object.entries(photo).filter(([name]) => name.startsWith("state/"));
  const step = async (words, parents) => {
    const ids = new ort.Tensor("int64", BigInt64Array.from(words, BigInt), [words.length]);
    const rows = state.map(([name, tensor]) => [name, pick(ort, tensor, parents)]);
    const tensors = { ...photo, words: ids, ...Object.fromEntries(rows) };
    const out = await sessions.decoder.run(inputsOf(sessions.decoder, tensors));
    state = state.map(([name]) => [name, out[name.replace("state", "next")]]);
    return Object.fromEntries(
      ["log_probs", "alpha", "beta"].map((name) => [name, out[name]?.data]));
  };
  let captions = await beamSearch(step, decoding);
  if (reranker) {
    const { values } = await sessions.reranker.run({ features: photo.features });
    captions = reranker.rank(captions, values.data);
  }
  captions = repeatedNounsLast(captions, settings.kinds);
  const described = calibration.describe(photo.features.data, settings.grid, captions);
  Object.assign(captions[0], described);
  return captions;
}

// Return a caption in the form of the web page's answers, for attention.js.
function describe(caption, { words: vocabulary, grid: [rows, columns] }) {
  const words = caption.finished ? caption.words.slice(0, -1) : caption.words;
  const text = words.map(({ word }) => vocabulary[word]);
  return {
    words: text,
    sentence: asSentence(text.join(" ")),
    log_prob: caption.logProb,
    score: caption.score,
    confidence: caption.confidence,
    confidence_word: caption.confidence_word,
    confidence_limits: caption.confidence_limits,
    word_log_probs: words.map(({ logProb }) => logProb),
    beta: words.map(({ beta }) => beta),
    attention: words.map(({ alpha }) => Array.from(
      { length: rows }, (_, y) => [...alpha.subarray(y * columns, (y + 1) * columns)])),
  };
}

// Return a caption with a capital and a full stop, as inference/result.py does.
function asSentence(caption) {
  const text = caption.replace(SEPARATED, "").replace(/[ .]+$/, "");
  if (!text) return "";
  return `${text[0].toUpperCase()}${text.slice(1)}${/[!?]$/.test(text) ? "" : "."}`;
}

async function caption(blob) {
  const image = await decode(blob).catch(() => {
    throw new Error("This browser cannot read the file as a photo; choose a JPEG or PNG.");
  });
  captioner ??= loadAny();
  const { settings } = await captioner.catch((error) => {
    captioner = null; // so that the next photo tries again
    throw error;
  });
  const start = performance.now();
  const { side, resize } = settings;
  const { width, height } = image;
  const captions = await captionsOf(toSquare(image, side, resize));
  const [best, ...others] = captions.map((one) => describe(one, settings));
  const [x0, y0, x1, y1] = seenRegion(width, height, side, resize);
  return {
    ...best,
    alternatives: others,
    seen: [x0 / width, y0 / height, x1 / width, y1 / height],
    seconds: (performance.now() - start) / 1000,
  };
}

let queue = Promise.resolve(); // photos are captioned one after the other
self.addEventListener("message", ({ data: { id, blob } }) => {
  queue = queue.then(async () => {
    try {
      postMessage({ kind: "answer", id, answer: await caption(blob) });
    } catch (error) {
      postMessage({ kind: "error", id, text: error.message });
    }
  });
});
