"use strict";
const constants = JSON.parse(document.getElementById("constants").textContent);
const reducedMotion = matchMedia("(prefers-reduced-motion: reduce)");
const FINE = 4, FADE = 160, PACE = 650; // pixels per location; milliseconds

function make(tag, className, parent, text) {
  const element = document.createElement(tag);
  if (className) element.className = className;
  if (text !== undefined) element.textContent = text;
  parent.append(element);
  return element;
}

/* The weight of each location in each fine pixel: a Gaussian mirrored at the edges. */
function smoothing(cells) {
  return Array.from({ length: cells * FINE }, (_, pixel) => {
    const x = (pixel + 0.5) / FINE;
    const row = Array.from({ length: cells }, (_, cell) =>
      [cell + 0.5, -cell - 0.5, 2 * cells - cell - 0.5]
        .map((c) => Math.exp(-0.5 * ((x - c) / constants.sigma) ** 2))
        .reduce((a, b) => a + b));
    const sum = row.reduce((a, b) => a + b);
    return row.map((value) => value / sum);
  });
}

/* One word's attention, smoothed and scaled so that its largest value is 1. */
function spread(shades, [rows, columns]) {
  const down = smoothing(rows), across = smoothing(columns);
  const wide = Array.from({ length: rows }, (_, r) => across.map((weights) =>
    weights.reduce((sum, w, c) => sum + w * shades[r * columns + c], 0)));
  const map = down.flatMap((weights) => across.map((_, x) =>
    weights.reduce((sum, w, r) => sum + w * wide[r][x], 0)));
  const peak = Math.max(...map, 1e-9);
  return map.map((value) => value / peak);
}

/* The position of a location on the photo, in words. */
function place(index, [rows, columns]) {
  const part = (k, n, names) => names[Math.min(2, Math.floor((3 * k + 1.5) / n))];
  const down = part(Math.floor(index / columns), rows, ["top", "middle", "bottom"]);
  const across = part(index % columns, columns, ["left", "centre", "right"]);
  return down === "middle" && across === "centre" ? "centre" : `${down} ${across}`;
}

/* One caption: the photo under attention, its words as buttons, a line of numbers. */
class Beam {
  constructor(photo, data, rank, parent) {
    Object.assign(this, { photo, data, rank, word: null, share: null, maps: [] });
    const bytes = Uint8Array.from(atob(data.alpha), (c) => c.charCodeAt(0));
    const cells = photo.grid[0] * photo.grid[1];
    this.shades = data.words.map((_, t) => bytes.subarray(t * cells, (t + 1) * cells));
    const box = make("section", rank ? "beam" : "beam best", parent);
    box.setAttribute("aria-label", rank ? `Alternative ${rank}`
      : constants.unit === "word" ? "Best caption" : "Text");
    this.draw(make("div", "seen", box));
    const side = rank ? box : make("div", "side", box);
    this.write(make("ol", "words", side));
    this.about = make("p", "about", side);
    if (!rank) {
      this.button = make("button", "play", side, "Play");
      this.button.type = "button";
      this.button.disabled = !data.words.length;
      this.button.onclick = () => photo.play();
    }
    this.report();
  }

  draw(seen) {
    const { size: [width, height], grid } = this.photo;
    seen.style.aspectRatio = `${width} / ${height}`;
    if (!this.rank) seen.style.maxWidth = `min(34rem, 70vh * ${width / height})`;
    const image = this.image = make("img", "", seen);
    image.src = this.photo.photo;
    image.alt = this.rank ? "" : `Photo ${this.photo.name}: ${this.data.text}`;
    this.canvas = make("canvas", "", seen);
    this.canvas.setAttribute("aria-hidden", "true");
    [this.canvas.height, this.canvas.width] = grid.map((cells) => cells * FINE);
    if (this.photo.region) {
      const [x0, y0, x1, y1] = this.photo.region.map((x) => 100 * x);
      Object.assign(make("div", "cell region", seen).style, {
        left: `${x0}%`, top: `${y0}%`, width: `${x1 - x0}%`, height: `${y1 - y0}%`,
      });
    }
    this.cell = make("div", "cell", seen);
    this.cell.hidden = true;
  }

  write(list) {
    this.buttons = this.data.words.map((word, t) => {
      const button = make("button", "", make("li", "", list), word);
      button.type = "button";
      button.tabIndex = t ? -1 : 0;
      button.setAttribute("aria-pressed", "false");
      button.setAttribute("aria-label", `${word}, ${this.numbers(t)}`);
      make("i", "", button).style.setProperty("--p", `${100 * this.data.p[t]}%`);
      /* A page that loads or scrolls under a resting pointer shows the photo. */
      button.onmousemove = () => this.photo.show(this.rank, t);
      button.onfocus = () => this.photo.show(this.rank, t);
      button.onclick = () => this.photo.show(this.rank, t);
      return button;
    });
    list.onmouseleave = () => {
      if (!list.contains(document.activeElement)) this.photo.show(this.rank, null);
    };
    list.onkeydown = (event) => this.photo.key(event, this, this.word ?? 0);
  }

  numbers(t) {
    const { p, beta, peaks, locations } = this.data;
    const selected = locations?.[t] ?? -1;
    const where = place(selected < 0 ? peaks[t] : selected, this.photo.grid);
    const gate = beta ? `, β ${beta[t].toFixed(2)}` : "";
    return `p ${p[t].toFixed(2)}${gate}, attention ${where}`;
  }

  report() {
    const { text, words, logProb, score } = this.data;
    if (this.word !== null) {
      this.about.textContent = `${words[this.word]}: ${this.numbers(this.word)}`;
    } else {
      const numbers = `log p ${logProb.toFixed(2)}`;
      this.about.textContent = score === null ? `${text}: ${numbers}`
        : `${this.rank ? "" : this.photo.confidenceWords()}${numbers}, score ${score.toFixed(2)}`;
    }
  }

  show(t) {
    if (t !== null && t >= this.data.words.length) t = null;
    if (t === this.word) return;
    this.buttons.forEach((button, k) => {
      button.setAttribute("aria-pressed", String(k === t));
      button.tabIndex = k === (t ?? 0) ? 0 : -1;
    });
    this.word = t;
    this.image.style.filter = t === null ? "" : `brightness(${this.photo.lift})`;
    this.report();
    this.outline();
    this.fade(t === null ? null : this.map(t));
  }

  map(t) {
    return this.maps[t] ??= spread(this.shades[t], this.photo.grid);
  }

  outline() {
    const [rows, columns] = this.photo.grid;
    const index = this.word === null ? -1 : this.data.locations?.[this.word] ?? -1;
    this.cell.hidden = index < 0;
    if (this.cell.hidden) return;
    Object.assign(this.cell.style, {
      left: `${100 * (index % columns) / columns}%`, width: `${100 / columns}%`,
      top: `${100 * Math.floor(index / columns) / rows}%`, height: `${100 / rows}%`,
    });
  }

  /* Fade from what is shown to a map, null being the photo as it is. */
  fade(target) {
    const pixels = this.canvas.width * this.canvas.height;
    const from = this.share ?? new Float32Array(pixels).fill(-1);
    const start = performance.now();
    cancelAnimationFrame(this.frame);
    const step = (now) => {
      const done = reducedMotion.matches ? 1 : Math.min(1, Math.max(0, now - start) / FADE);
      this.share = from.map((old, i) => old + done * ((target ? target[i] : -1) - old));
      this.paint();
      if (done < 1) this.frame = requestAnimationFrame(step);
    };
    step(reducedMotion.matches ? Infinity : start);
  }

  /* Shadow and light that turn the photo x into x * keep + add; a share of -1 to 0
     is between the photo as it is and its darkest. */
  paint() {
    const { veil, glow } = constants;
    const context = this.canvas.getContext("2d");
    const picture = context.createImageData(this.canvas.width, this.canvas.height);
    this.share.forEach((share, i) => {
      const keep = share < 0 ? veil - share * (1 - veil) : veil + share * (1 - glow - veil);
      const add = Math.max(0, share) * glow;
      const light = keep < 1 ? 255 * Math.min(1, add / (1 - keep)) : 0;
      picture.data.set([light, light, light, 255 * (1 - keep)], 4 * i);
    });
    context.putImageData(picture, 0, 0);
  }
}

/* A photo with its captions side by side; all show the word at the same position. */
class Photo {
  constructor(data, parent) {
    Object.assign(this, data);
    const article = this.article = make("article", "", parent);
    make("h2", "name", article, this.name);
    if (this.note) make("p", "help", article, this.note);
    const best = make("div", "beams", article);
    const others = data.beams.length > 1 ? this.makeOthers(data.beams.length - 1) : null;
    this.beams = data.beams.map((beam, rank) => new Beam(this, beam, rank, rank ? others : best));
    this.live = make("p", "hidden", article);
    this.live.setAttribute("aria-live", "polite");
  }

  /* The place of the alternatives, which repeat the photo: closed at first. */
  makeOthers(count) {
    this.others = make("details", "others", this.article);
    make("summary", "", this.others, `${count} other caption${count === 1 ? "" : "s"}`);
    return make("div", "beams", this.others);
  }

  confidenceWords() {
    return this.confidenceWord === null ? "" : `${this.confidenceWord}, confidence ${this.confidence}, `;
  }

  show(rank, t) {
    this.beams.forEach((beam) => beam.show(t));
    const beam = this.beams[rank];
    this.live.textContent = t === null ? beam.data.text : "";
  }

  key(event, beam, t) {
    const last = beam.data.words.length - 1;
    const moves = { ArrowRight: Math.min(t + 1, last), ArrowLeft: Math.max(t - 1, 0),
      Home: 0, End: last };
    const ranks = { ArrowDown: 1, ArrowUp: -1 };
    if (event.key in moves) {
      beam.buttons[moves[event.key]].focus();
    } else if (event.key in ranks) {
      const other = this.beams[beam.rank + ranks[event.key]];
      if (other?.rank) this.others.open = true;
      other?.buttons[Math.min(t, other.buttons.length - 1)]?.focus();
    } else if (event.key === "Escape") {
      this.stop();
      this.show(beam.rank, null);
    } else return;
    event.preventDefault();
  }

  stop() {
    clearInterval(this.timer);
    this.timer = null;
    this.beams[0].button.textContent = "Play";
  }

  play() {
    if (this.timer) return this.stop();
    const last = Math.max(...this.beams.map((beam) => beam.data.words.length)) - 1;
    let t = 0;
    this.show(0, t);
    this.beams[0].button.textContent = "Stop";
    this.timer = setInterval(() => {
      if (t === last) {
        this.stop();
        this.show(0, null);
      } else this.show(0, ++t);
    }, PACE);
  }
}

const main = document.getElementById("photos");
const photos = [...document.querySelectorAll("script.photo")].map(
  (script) => new Photo(JSON.parse(script.textContent), main));
/* Without a focus, the right key enters the caption of the first photo in sight. */
document.onkeydown = (event) => {
  if (event.key !== "ArrowRight" || event.target !== document.body) return;
  const seen = photos.find(({ article }) => article.getBoundingClientRect().bottom > 0);
  seen?.beams[0].buttons[0]?.focus();
};
/* In a notebook, resize the frame to the height of the page. */
if (window.frameElement) {
  new ResizeObserver(() => {
    window.frameElement.style.height = `${document.documentElement.offsetHeight + 2}px`;
  }).observe(document.documentElement);
}
