// Decode a photo and resize it to the network's square, pixel for pixel as Pillow does.

const BITS = 22; // of the fraction of Pillow's weights: 32 - 8 - 2
const SUPPORT = 2; // of the bicubic filter, in pixels

// Return the pixels of an encoded photo, upright and on white.
//
// Args:
//   blob: the file.
// Returns: {data: RGBA bytes, width, height}. Throws if the browser cannot decode it.
export async function decode(blob) {
  const image = await createImageBitmap(blob, { colorSpaceConversion: "none" });
  const { width, height } = image;
  const context = new OffscreenCanvas(width, height).getContext("2d");
  context.fillStyle = "white";
  context.fillRect(0, 0, width, height);
  context.drawImage(image, 0, 0);
  image.close();
  return context.getImageData(0, 0, width, height);
}

// Return the region of a photo that becomes the square, as data.preprocessing.seen_region.
//
// Args:
//   width, height: of the photo, in pixels.
//   side: of the square, in pixels.
//   resize: "crop" or "squash".
// Returns: [x0, y0, x1, y1] in pixels of the photo.
export function seenRegion(width, height, side, resize) {
  if (resize === "squash") return [0, 0, width, height];
  const scale = halfToEven((side * 8) / 7) / Math.min(width, height);
  const [wide, high] = [halfToEven(width * scale), halfToEven(height * scale)];
  const [left, top] = [Math.floor((wide - side) / 2), Math.floor((high - side) / 2)];
  const [across, down] = [width / wide, height / high];
  return [
    left * across, top * down,
    Math.min((left + side) * across, width), Math.min((top + side) * down, height),
  ];
}

// Return the square that the network sees, (side, side, 3) bytes.
export function toSquare({ data, width, height }, side, resize) {
  const [x0, y0, x1, y1] = seenRegion(width, height, side, resize);
  const across = { axis: "x", weights: weightsOf(width, x0, x1, side) };
  const down = { axis: "y", weights: weightsOf(height, y0, y1, side) };
  // Pillow resizes the axis first that shrinks much more than the other.
  const columnsFirst = height > side && height - side > (width - side) * 2;
  let image = { data, width, height, channels: 4 };
  for (const pass of columnsFirst ? [down, across] : [across, down]) {
    image = resizeAxis(image, side, pass);
  }
  return image.data;
}

// Return the first pixel and the weights, integers of BITS bits, of each pixel of a result.
function weightsOf(size, start, end, side) {
  [start, end] = [Math.fround(start), Math.fround(end)];
  const scale = Math.fround(end - start) / side;
  const stretch = Math.max(scale, 1);
  return Array.from({ length: side }, (_, k) => {
    const centre = start + (k + 0.5) * scale;
    const first = Math.max(Math.trunc(centre - SUPPORT * stretch + 0.5), 0);
    const last = Math.min(Math.trunc(centre + SUPPORT * stretch + 0.5), size);
    const weights = new Float64Array(last - first);
    let sum = 0;
    for (let x = first; x < last; x++) {
      weights[x - first] = bicubic((x - centre + 0.5) * (1 / stretch));
      sum += weights[x - first];
    }
    const whole = weights.map((w) => {
      const scaled = (sum ? w / sum : w) * 2 ** BITS;
      return Math.trunc(scaled < 0 ? scaled - 0.5 : scaled + 0.5);
    });
    return { first, weights: whole };
  });
}

function bicubic(x) {
  x = Math.abs(x);
  if (x < 1) return (1.5 * x - 2.5) * x * x + 1;
  return x < 2 ? (((x - 5) * x + 8) * x - 4) * -0.5 : 0;
}

// Resize one axis of an image {data, width, height, channels} to three channels.
function resizeAxis({ data, width, height, channels }, side, { axis, weights }) {
  const horizontal = axis === "x";
  const [wide, high] = horizontal ? [side, height] : [width, side];
  const stride = horizontal ? channels : channels * width; // between pixels of a sum
  const result = new Uint8ClampedArray(wide * high * 3);
  for (let y = 0; y < high; y++) {
    for (let x = 0; x < wide; x++) {
      const { first, weights: w } = weights[horizontal ? x : y];
      const [row, column] = horizontal ? [y, first] : [first, x];
      let [red, green, blue] = [0, 0, 0];
      for (let k = 0, p = (row * width + column) * channels; k < w.length; k++, p += stride) {
        red += w[k] * data[p];
        green += w[k] * data[p + 1];
        blue += w[k] * data[p + 2];
      }
      const at = (y * wide + x) * 3;
      result[at] = rounded(red);
      result[at + 1] = rounded(green);
      result[at + 2] = rounded(blue);
    }
  }
  return { data: result, width: wide, height: high, channels: 3 };
}

const rounded = (sum) => Math.floor((sum + 2 ** (BITS - 1)) / 2 ** BITS);

// Round as Python does: of two nearest integers to the even one.
function halfToEven(x) {
  const rounded = Math.round(x);
  return Math.abs(x % 1) === 0.5 && rounded % 2 ? rounded - 1 : rounded;
}
