/** Remembers an answer for a short time and lets concurrent askers share one question. Failures are not kept. */
export function memoFor<T>(
  keepMs: number,
  ask: () => Promise<T>,
  nowMs: () => number = () => performance.now(),
): () => Promise<T> {
  let askedAtMs = -Infinity;
  let answer: Promise<T> | undefined;
  return () => {
    if (answer === undefined || nowMs() - askedAtMs > keepMs) {
      askedAtMs = nowMs();
      const asked = ask();
      answer = asked;
      asked.catch(() => {
        if (answer === asked) answer = undefined;
      });
    }
    return answer;
  };
}
