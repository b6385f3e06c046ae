"use strict";
// Label the bars of code blocks, and let keys scroll what is wider than the page.

let labelled = 0;

function complete() {
  for (const bar of document.querySelectorAll(".md-code__nav:not([aria-label])")) {
    labelled += 1;
    bar.setAttribute("aria-label", `Code ${labelled}`);
  }
  const wide = "pre, pre code, .highlight-ipynb, .jp-OutputArea-output, .md-typeset__scrollwrap";
  for (const box of document.querySelectorAll(wide)) {
    if (box.scrollWidth > box.clientWidth) box.tabIndex = 0;
  }
}

new MutationObserver(complete).observe(document.body, { childList: true, subtree: true });
addEventListener("resize", complete);
complete();
