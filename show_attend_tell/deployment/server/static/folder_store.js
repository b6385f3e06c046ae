"use strict";
// Keep captions of the tab of folders in this browser, until they are saved or discarded.

const STORE = "captions"; // of records by their path, see `recordOf` in folder.js
let opened = null; // the promise of the database

function openDatabase() {
  return new Promise((done, fail) => {
    const request = indexedDB.open("show-attend-tell", 1);
    request.onupgradeneeded = () => request.result.createObjectStore(STORE, { keyPath: "path" });
    request.onsuccess = () => done(request.result);
    request.onerror = () => fail(request.error);
  });
}

// Run a function of the store in a transaction; return the result of its last request.
async function inStore(mode, use) {
  opened ??= openDatabase();
  const transaction = (await opened).transaction(STORE, mode);
  const request = use(transaction.objectStore(STORE));
  return new Promise((done, fail) => {
    transaction.oncomplete = () => done(request?.result);
    transaction.onabort = () => fail(transaction.error);
  });
}

const keepRecord = (record) => inStore("readwrite", (store) => store.put(record));

const keptRecords = () => inStore("readonly", (store) => store.getAll());

const forgetRecords = (paths) => inStore("readwrite", (store) => {
  for (const path of paths) store.delete(path);
});

const forgetAllRecords = () => inStore("readwrite", (store) => store.clear());
