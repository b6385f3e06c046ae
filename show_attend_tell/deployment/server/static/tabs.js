"use strict";
// Start the page; its tabs: photos, folders, and the tabs of plug-ins.

const tabs = [{ name: "photos" }]; // in the order of the page
const starters = []; // of the tabs of plug-ins

// Call a function of a plug-in when the page starts; it adds its tab.
function onStart(start) {
  starters.push(start);
}

function selectTab(name) {
  for (const tab of tabs) {
    const chosen = tab.name === name;
    $(tab.name).hidden = $(`${tab.name}-intro`).hidden = !chosen;
    $(`tab-${tab.name}`).setAttribute("aria-selected", String(chosen));
    $(`tab-${tab.name}`).tabIndex = chosen ? 0 : -1;
    if (chosen && tab.onSelect) tab.onSelect();
  }
}

// Show a further tab; `onSelect` is called when it is opened.
function addTab(name, onSelect) {
  tabs.push({ name, onSelect });
  $(`tab-${name}`).hidden = false;
}

function wireTabs() {
  for (const { name } of tabs) $(`tab-${name}`).addEventListener("click", () => selectTab(name));
  $("tabs").addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!step) return;
    const now = tabs.findIndex(({ name }) => !$(name).hidden);
    const { name } = tabs[(now + step + tabs.length) % tabs.length];
    selectTab(name);
    $(`tab-${name}`).focus();
  });
  // Photos that another tab has not taken are captioned.
  document.addEventListener("drop", (event) => takeFiles(event, event.dataTransfer));
  document.addEventListener("paste", (event) => takeFiles(event, event.clipboardData));
  $("tabs").hidden = false;
}

async function startPage() {
  const about = await (await fetch("about")).json();
  startPhotos(about);
  startFolder();
  for (const start of starters) {
    try {
      start();
    } catch (error) {
      console.error(error); // the other tabs work
    }
  }
  wireTabs();
}

// After the scripts of plug-ins, which are deferred too.
document.addEventListener("DOMContentLoaded", startPage);
