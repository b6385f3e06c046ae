// Search the most probable captions as reference/beam.py does, ties included, rank them
// as reference/reranker.py does, and put captions that repeat a noun last as
// reference/hypotheses.py does.

const PAD = 0, START = 1, END = 2, UNKNOWN = 3; // ids of data/vocabulary.py
const ORDERS = 4; // n of the n-grams, 1 to 4

// Return finished captions, best first.
//
// A hypothesis is a list of its words, each linked to the one before: {word, logProb,
// alpha, beta, before}.
//
// Args:
//   step: async (words, parents) -> {log_probs (W, K), alpha (W, L), beta (W) or undefined},
//     Float32Arrays; row w continues row parents[w] of the step before.
//   settings: of captioner.json: beam, max_words, length_normalisation, allow_unknown.
// Returns: [{words: [{word, logProb, alpha, beta}], logProb, score, finished}].
export async function beamSearch(step, settings) {
  const { beam: W, max_words: T, length_normalisation: exponent } = settings;
  const forbidden = settings.allow_unknown ? [PAD, START] : [PAD, START, UNKNOWN];
  const powers = Array.from({ length: T }, (_, t) => Math.fround((t + 1) ** exponent));
  const ranking = W > 1 ? powers : powers.map(() => 1); // one place: nothing to rank
  let live = [{ total: 0, last: null }];
  let words = [START], parents = [0], finished = [];
  for (let t = 0; t < T; t++) {
    const { log_probs: logProbs, alpha, beta } = await step(words, parents);
    const K = logProbs.length / live.length, L = alpha.length / live.length;
    for (let w = 0; w < live.length; w++) {
      for (const word of forbidden) logProbs[w * K + word] = -Infinity;
    }
    const candidates = logProbs.map((x, k) => live[Math.floor(k / K)].total + x); // float32
    const next = largest(candidates, 2 * W).map((k) => {
      const parent = Math.floor(k / K);
      return {
        total: candidates[k],
        parent,
        last: {
          word: k % K,
          logProb: logProbs[k],
          alpha: alpha.subarray(parent * L, (parent + 1) * L),
          beta: beta ? beta[parent] : 1,
          before: live[parent].last,
        },
      };
    });
    for (const { total, last } of next.slice(0, W)) {
      if (last.word !== END) continue;
      finished.push({ last, total, score: Math.fround(total / ranking[t]) });
    }
    finished = finished.sort((a, b) => b.score - a.score).slice(0, W); // stable
    live = next.filter(({ last }) => last.word !== END).slice(0, W);
    [words, parents] = [live.map(({ last }) => last.word), live.map(({ parent }) => parent)];
    const reachable = live.length ? Math.fround(live[0].total / ranking[T - 1]) : -Infinity;
    if (finished.length === W && finished[W - 1].score >= reachable) break;
    if (!live.length) break;
  }
  return (finished.length ? finished : live).map(({ last, total }) => {
    const caption = [];
    for (let word = last; word; word = word.before) caption.unshift(word);
    const score = Math.fround(total / powers[caption.length - 1]);
    return { words: caption, logProb: total, score, finished: finished.length > 0 };
  });
}

// Return the indices of the largest finite values, of equal ones the first.
export function largest(values, count) {
  const best = []; // indices, largest value first
  for (let k = 0; k < values.length; k++) {
    if (best.length === count && !(values[k] > values[best[count - 1]])) continue;
    if (!(values[k] > -Infinity)) continue;
    let place = best.length;
    while (place && values[k] > values[best[place - 1]]) place--;
    best.splice(place, 0, k);
    if (best.length > count) best.pop();
  }
  return best;
}

const [NOUN, MODIFIER, CLOSER, JOINER] = ["0", "1", "2", "3"]; // of data/noun_phrases.py

// Return captions of beamSearch with those that repeat a noun behind the others.
//
// Args: kinds, of captioner.json: a digit for each word of the vocabulary.
export function repeatedNounsLast(captions, kinds) {
  const repeats = captions.map(({ words }) => {
    const ids = words.map(({ word }) => word).filter((word) => word > END);
    return repeatsNoun(ids, ids.map((word) => kinds[word]));
  });
  const of = (wanted) => captions.filter((_, k) => repeats[k] === wanted);
  return [...of(false), ...of(true)];
}

// Return whether two noun phrases have one head and the same modifiers.
export function repeatsNoun(words, kinds) {
  const closes = (t) => {
    const joins = kinds[t - 1] === MODIFIER && kinds[t + 1] === MODIFIER;
    return kinds[t] === CLOSER || (kinds[t] === JOINER && !joins);
  };
  const phrases = new Set();
  let start = 0; // of the phrase
  for (let t = 0; t < words.length; t++) {
    if (closes(t)) {
      start = t + 1;
    } else if (kinds[t] === NOUN && (t + 1 === words.length || closes(t + 1))) {
      const modifiers = [...new Set(words.slice(start, t))].sort((a, b) => a - b);
      const phrase = [words[t], ...modifiers].join(" ");
      if (phrases.has(phrase)) return true;
      phrases.add(phrase);
    }
  }
  return false;
}

// A reranker orders captions by score + weight * expected CIDEr.
export class Reranker {
  // Args: ngrams, ids of words; idf of each; weight.
  constructor(ngrams, idf, weight) {
    this.columns = new Map(ngrams.map((ngram, k) => [ngram.join(" "), k]));
    this.idf = idf;
    this.weight = weight;
  }

  // Return captions of beamSearch in their order; values (G,) are the photo's.
  rank(captions, values) {
    const ranked = captions.map((caption) => {
      const words = caption.words.map(({ word }) => word).filter((word) => word > END);
      const expected = this.cider(words, values);
      return { ...caption, expected, score: caption.score + this.weight * expected };
    });
    return ranked.sort((a, b) => b.score - a.score); // stable
  }

  // Return the expected CIDEr of a caption: the cosine of n-grams, for n of 1 to 4.
  cider(words, values) {
    let sum = 0;
    for (let n = 1; n <= ORDERS; n++) {
      const counts = new Map();
      for (let k = 0; k + n <= words.length; k++) {
        const column = this.columns.get(words.slice(k, k + n).join(" "));
        if (column !== undefined) counts.set(column, (counts.get(column) ?? 0) + 1);
      }
      let [product, squares] = [0, 0];
      for (const [column, times] of counts) {
        const weight = times * this.idf[column];
        product += weight * values[column];
        squares += weight * weight;
      }
      if (squares) sum += product / Math.sqrt(squares);
    }
    return sum / Math.sqrt(ORDERS);
  }
}
