// Load the files of the page once; the browser's cache keeps them.

const CACHE = "show-attend-tell";

// Return a function that loads a file of the page by its name.
//
// files.json beside the page lists each file with its size and SHA-256; files are
// compressed. A file is fetched again only if its hash changes.
//
// Args:
//   names: of the files that will be loaded.
//   onProgress: called with the bytes loaded and those of all files.
export async function openFiles(names, onProgress) {
  const response = await fetch("files.json", { cache: "no-cache" });
  if (!response.ok) {
    throw new Error(
      "This copy of the site was built without the captioner's files; build it with a network.");
  }
  const files = await response.json();
  const present = names.filter((name) => name in files); // not each model has a reranker
  const total = present.reduce((sum, name) => sum + files[name].bytes, 0);
  const cache = globalThis.caches ? await caches.open(CACHE) : null;
  const addresses = Object.entries(files).map(([name, { sha256 }]) => `${name}.gz?${sha256}`);
  for (const { url } of cache ? await cache.keys() : []) {
    if (!addresses.some((address) => url.endsWith(`/${address}`))) await cache.delete(url);
  }
  let done = 0;
  return async (name) => {
    const { sha256, bytes } = files[name];
    const address = new URL(`${name}.gz?${sha256}`, import.meta.url).href;
    const start = done;
    const kept = await cache?.match(address);
    const content = kept
      ? new Uint8Array(await kept.arrayBuffer())
      : await download(address, bytes, (loaded) => onProgress(start + loaded, total));
    if (!kept) await requireWhole(name, content, sha256);
    if (!kept) await cache?.put(address, new Response(content)).catch(() => {}); // full disk
    done += bytes;
    onProgress(done, total);
    return unpacked(content);
  };
}

async function download(address, bytes, onLoaded) {
  const response = await fetch(address);
  if (!response.ok) throw new Error(`${address}: status ${response.status}; reload the page.`);
  const content = new Uint8Array(bytes);
  let loaded = 0;
  for (const reader = response.body.getReader(); ;) {
    const { done, value } = await reader.read();
    if (done) return content.subarray(0, loaded);
    content.set(value, loaded);
    loaded += value.length;
    onLoaded(loaded);
  }
}

async function requireWhole(name, content, sha256) {
  if (!globalThis.crypto?.subtle) return; // on a page without https
  const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", content));
  const text = [...digest].map((byte) => byte.toString(16).padStart(2, "0")).join("");
  if (text !== sha256) throw new Error(`${name}: damaged on its way; reload the page.`);
}

async function unpacked(content) {
  const stream = new Blob([content]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}
