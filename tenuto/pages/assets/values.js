// What an agent's heads say, and what follows from it for any λ: lengths, ways through a map, averages.
"use strict";

// Single-precision numbers, and where in them a head's values begin.
function numbers(packed) {
  if (!packed) return null;
  const bytes = Uint8Array.from(atob(packed.float32), (letter) => letter.charCodeAt(0));
  const view = new DataView(bytes.buffer);
  const values = Float32Array.from({ length: bytes.length / 4 }, (_, i) => view.getFloat32(4 * i, true));
  return { values, shape: packed.shape };
}

// A table of option values: (snapshots, states, actions, heads, lengths).
class Values {
  constructor({ values, actions }) {
    Object.assign(this, numbers(values));
    this.actions = actions;
  }

  get snapshots() { return this.shape[0]; }
  get states() { return this.shape[1]; }
  get heads() { return this.shape[3]; }
  get hasEveryAction() { return this.shape[2] > 1; }

  action(snapshot, state) {
    return this.actions[snapshot][state];
  }

  // What each head says of each length, of an action; that which is decided unless one is named.
  of(snapshot, state, action = this.action(snapshot, state)) {
    const [, states, actions, heads, lengths] = this.shape;
    const begin = ((snapshot * states + state) * actions + (this.hasEveryAction ? action : 0)) * heads * lengths;
    return Array.from({ length: heads }, (_, head) =>
      Array.from(this.values.subarray(begin + head * lengths, begin + (head + 1) * lengths)));
  }

  // Mean, spread and score of each length, and the place of the best score among them.
  scored(snapshot, state, lam, action) {
    const heads = this.of(snapshot, state, action);
    const lengths = heads.length ? heads[0].map((_, i) => i) : [];
    const means = lengths.map((i) => mean(heads.map((head) => head[i])));
    const spreads = lengths.map((i) => Math.sqrt(mean(heads.map((head) => (head[i] - means[i]) ** 2))));
    const scores = lengths.map((i) => means[i] + lam * spreads[i]);
    return { heads, means, spreads, scores, best: scores.indexOf(Math.max(...scores)) };
  }
}

// The way from a map's start at this λ, where moves are certain: a step is {state, place, action, length, done}.
function walk(subject, map, snapshot, lam) {
  const stateAt = new Map(map.states.map((place, state) => [place, state]));
  const steps = [];
  let [place, total, over] = [map.start, 0, false];
  while (!over && steps.length < map.limit) {
    const first = stateAt.get(place);
    const action = subject.table.action(snapshot, first);
    const { best, length } = lengthAt(subject, snapshot, first, lam);
    for (let done = 1; done <= length && !over && steps.length < map.limit; done++) {
      const state = stateAt.get(place);
      steps.push({ state, place, action, length, done, decided: done === 1, best });
      total += map.reward[state][action];
      over = Boolean(map.ends[state][action]);
      place = map.to[state][action];
    }
  }
  return { steps, end: place, total, decisions: steps.filter((step) => step.decided).length };
}

// The length that is decided in a state.
function lengthAt(subject, snapshot, state, lam) {
  const scored = subject.table.scored(snapshot, state, lam);
  return { ...scored, length: scored.best < 0 ? subject.lengths[0] : subject.lengths[scored.best] };
}

// Means over the states of a map, of what would be decided in each.
function average(subject, snapshot, lam) {
  const each = Array.from({ length: subject.table.states }, (_, state) => lengthAt(subject, snapshot, state, lam));
  const spreads = each.filter((found) => found.best >= 0).map((found) => found.spreads[found.best]);
  return { length: mean(each.map((found) => found.length)), spread: spreads.length ? mean(spreads) : null };
}

// How far the mean of the heads is from the exact value, on average over states, for the option that is decided.
function averageError(subject, snapshot, lam) {
  if (!subject.exactValues) return null;
  const { values, shape: [, actions, lengths] } = subject.exactValues;
  return mean(Array.from({ length: subject.table.states }, (_, state) => {
    const { means, best } = lengthAt(subject, snapshot, state, lam);
    const action = subject.table.action(snapshot, state);
    return Math.abs(means[best] - values[(state * actions + action) * lengths + best]);
  }));
}
