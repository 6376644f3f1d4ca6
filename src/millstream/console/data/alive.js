// Whether the broker answers, and since when not. Pages tell it; the shell shows it.

const listeners = new Set();
const tell = () => listeners.forEach((listener) => listener());

export const alive = {
  answeredAt: 0,
  brokenSince: 0,
  sentence: '',
  succeeded() {
    const wasBroken = this.brokenSince !== 0;
    this.answeredAt = Date.now();
    this.brokenSince = 0;
    if (wasBroken) tell();
  },
  failed(error) {
    this.sentence = error.message;
    if (this.brokenSince === 0) {
      this.brokenSince = Date.now();
      tell();
    }
  },
  subscribe(listener) {
    listeners.add(listener);
    return () => listeners.delete(listener);
  },
};
