// Compute the confidence of a caption as inference/confidence.py and inference/tags.py
// do, which have the equations. G = 3 D.

const [LIMIT, SMALLEST, LEAST_P, EPSILON] = [4, 1e-12, 1e-3, 1e-3];

const sum = (values) => values.reduce((a, b) => a + b, 0);
const probability = (z) => 1 / (1 + Math.exp(-z));

export class Calibration {
  // Args: the content of confidence.json: arrays in base64, float32; content words by
  // their ids; nouns by the ids of their words; coefficients of the tags; the words for a
  // confidence; names of the statistics.
  constructor({ arrays, ...rest }) {
    Object.assign(this, rest);
    for (const [name, text] of Object.entries(arrays)) {
      const bytes = Uint8Array.from(atob(text), (char) => char.charCodeAt(0));
      this[name] = new Float32Array(bytes.buffer);
    }
  }

  // Return {confidence, confidence_word, confidence_limits} of the best caption.
  //
  // Args:
  //   features: annotations, L * D values; grid: [rows, columns], L locations.
  //   captions: of beamSearch, the best first: logProb and words, [{word, logProb}] with
  //     the end word.
  describe(features, grid, captions) {
    const values = this.values(features, grid, captions);
    const x = this.statistics.map((name, k) => (
      Math.min(Math.max((values[name] - this.centre[k]) / this.scale[k], -LIMIT), LIMIT)));
    const parts = [["familiarity", this.familiarity], ["quality", this.quality]];
    const [known, good] = parts.map(([part, coefficients]) => {
      const columns = this.columns[part];
      return probability(sum(columns.map((k, i) => x[k] * coefficients[i]))
        + coefficients[columns.length]);
    });
    const confidence = Math.round(1e6 * known * good) / 1e6;
    const named = Object.entries(this.confidence_words);
    const [word] = named.find(([, least]) => confidence >= least);
    const limits = named.map(([, least]) => least);
    return { confidence, confidence_word: word, confidence_limits: limits };
  }

  // Return the statistics of a photo and its best caption by their names.
  values(features, grid, captions) {
    const D = this.layout.length, k = this.variances.length, V = this.words.length;
    const g = describePhoto(features, grid, D);
    const centred = g.map((value, i) => value - this.mean[i]);
    const y = new Float64Array(k), seen = new Float64Array(3 * D);
    centred.forEach((value, i) => {
      for (let j = 0; j < k; j++) y[j] += value * this.components[i * k + j];
    });
    for (let i = 0; i < 3 * D; i++) {
      for (let j = 0; j < k; j++) seen[i] += y[j] * this.components[i * k + j];
    }
    const outside = sum(centred.map((value, i) => (value - seen[i]) ** 2));
    const distance = sum(y.map((value, j) => value * value / this.variances[j])) / k;
    const direction = g.slice(0, D).map((value, i) => value - g[2 * D + i]);
    const norms = Math.hypot(...direction) * Math.hypot(...this.layout);
    const z = y.map((value, j) => value / Math.sqrt(this.variances[j]));
    // The probability of the content word at a place of `this.words`.
    const expected = (place) => {
      const p = this.shares[place] + sum(z.map((value, j) => value * this.word_weights[j * V + place]));
      return Math.min(Math.max(p, LEAST_P), 1);
    };
    const [{ words }] = captions;
    const logProbs = captions.map(({ logProb }) => logProb);
    return {
      residual: -Math.log(Math.max(outside, SMALLEST)),
      distance: -Math.log(Math.max(distance, SMALLEST)),
      layout: sum(direction.map((value, i) => value * this.layout[i])) / Math.max(norms, SMALLEST),
      grounding: this.grounding(expected, words),
      log_prob: sum(words.map(({ logProb }) => logProb)) / Math.max(words.length, 1),
      certainty: Math.max(...logProbs),
      nouns: this.nounOdds(expected, captions),
    };
  }

  // Return the mean log ratio of the content words, 0 without any.
  grounding(expected, words) {
    const ratios = words.map(({ word }) => this.words.indexOf(word)).filter((w) => w >= 0)
      .map((w) => Math.log(expected(w) / this.shares[w]));
    return sum(ratios) / Math.max(ratios.length, 1);
  }

  // Return the mean log odds of the nouns of the best caption, 0 without any.
  nounOdds(expected, captions) {
    const highest = Math.max(...captions.map(({ logProb }) => logProb));
    const weights = captions.map(({ logProb }) => Math.exp(logProb - highest));
    const nouns = captions.map(({ words }) => this.nounsOf(words));
    const odds = [...nouns[0]].map((noun) => {
      const share = sum(weights.filter((_, w) => nouns[w].has(noun))) / sum(weights);
      const places = this.places[noun] ?? [];
      const total = (values) => Math.log(Math.min(sum(values), 1));
      const x = [
        Math.log((share + EPSILON) / (1 - share + EPSILON)),
        places.length ? total(places.map(expected)) : 0,
        places.length ? total(places.map((place) => this.shares[place])) : 0,
        places.length ? 0 : 1,
        1,
      ];
      return sum(x.map((value, k) => value * this.tags[k]));
    });
    return sum(odds) / Math.max(odds.length, 1);
  }

  // Return the set of nouns of a caption.
  nounsOf(words) {
    const found = new Set();
    for (let t = 0; t < words.length; t++) {
      const compound = this.compounds[`${words[t].word} ${words[t + 1]?.word}`];
      const noun = compound ?? this.nouns[words[t].word];
      if (noun) found.add(noun);
      if (compound) t++;
    }
    return found;
  }
}

// Return g(a) of length 1, top, middle and bottom, L * D values -> (3 D,).
function describePhoto(features, [rows, columns], D) {
  const third = Math.ceil(rows / 3);
  const middle = rows > 2 * third ? [third, rows - third] : [0, rows];
  const bands = [[0, third], middle, [rows - third, rows]];
  const g = new Float64Array(3 * D);
  bands.forEach(([top, bottom], band) => {
    for (let l = top * columns; l < bottom * columns; l++) {
      for (let d = 0; d < D; d++) g[band * D + d] += features[l * D + d];
    }
    for (let d = band * D; d < (band + 1) * D; d++) {
      const mean = g[d] / ((bottom - top) * columns);
      g[d] = Math.sign(mean) * Math.sqrt(Math.abs(mean));
    }
  });
  const length = Math.max(Math.hypot(...g), SMALLEST);
  return g.map((value) => value / length);
}
