"use strict";
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
