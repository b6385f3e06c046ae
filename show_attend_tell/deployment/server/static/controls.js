"use strict";
// What the tabs share: requests, files, keys, and a pen to draw with.

const MAX_TRIES = 6; // while the server is busy

// Return the JSON of an answer; wait while the queue is full.
//
// Args:
//   url, options: of fetch.
//   isCurrent: whether the answer is still wanted; if not, null is returned.
//   onWait: called with the seconds of each wait.
async function askServer(url, options, isCurrent = () => true, onWait = () => {}) {
  for (let tries = 1; isCurrent(); tries++) {
    let response, answer;
    try {
      response = await fetch(url, options);
      answer = await response.json();
    } catch (error) {
      throw new Error("The server does not respond; is it running?");
    }
    if (response.ok) return answer;
    if (response.status !== 503 || tries === MAX_TRIES) throw new Error(answer.error);
    const wait = Number(response.headers.get("Retry-After")) || 2;
    if (isCurrent()) onWait(wait);
    await new Promise((done) => setTimeout(done, 1000 * wait));
  }
  return null;
}

function showError(id, text) {
  $(id).textContent = text;
  $(id).hidden = !text;
}

// Call a function with each file that a visitor chooses.
function onFile(input, take) {
  input.addEventListener("change", () => {
    const [file] = input.files;
    if (file) take(file);
    input.value = "";
  });
}

// Let the arrow keys, Home and End move among the buttons of an element.
//
// Args:
//   element: the parent of the buttons.
//   selected: returns the number of the selected button.
//   onMove: called with the number of the button that gets the focus.
function moveWithKeys(element, selected, onMove = () => {}) {
  element.addEventListener("keydown", (event) => {
    const last = element.children.length - 1;
    const moves = {
      ArrowRight: selected() + 1, ArrowLeft: selected() - 1, Home: 0, End: last,
    };
    if (!(event.key in moves)) return;
    event.preventDefault();
    const k = Math.min(Math.max(moves[event.key], 0), last);
    onMove(k);
    element.children[k].focus();
  });
}

// Let a visitor draw on a canvas with a mouse, a finger or a pen.

// Args:
//   canvas: the area to draw in.
//   ink: {colour, width}, of a line, in pixels of the canvas.
//   onEnd: called after each stroke.
//   onPoint: called with each point of a stroke, in pixels of the canvas.
function attachPen(canvas, ink, onEnd, onPoint = () => {}) {
  let last = null; // the last point of a stroke, while drawing

  function pointOfPen(event) {
    const { left, top, width, height } = canvas.getBoundingClientRect();
    return [
      ((event.clientX - left) / width) * canvas.width,
      ((event.clientY - top) / height) * canvas.height,
    ];
  }

  function drawStroke(event) {
    if (!last) return;
    const context = canvas.getContext("2d");
    const point = pointOfPen(event);
    context.strokeStyle = ink.colour;
    context.lineWidth = ink.width;
    context.lineCap = "round";
    context.beginPath();
    context.moveTo(...last);
    context.lineTo(point[0] + 0.01, point[1]); // a click is a dot: a line must have a length
    context.stroke();
    last = point;
    onPoint(point);
  }

  function startStroke(event) {
    if (event.button) return;
    event.preventDefault();
    canvas.setPointerCapture(event.pointerId);
    last = pointOfPen(event);
    drawStroke(event);
  }

  function endStroke(event) {
    if (!last) return;
    if (event.type === "pointerup") drawStroke(event);
    last = null;
    onEnd();
  }

  canvas.addEventListener("pointerdown", startStroke);
  canvas.addEventListener("pointermove", drawStroke);
  for (const kind of ["pointerup", "pointercancel"]) canvas.addEventListener(kind, endStroke);
}
