/** Who waits for news of which owner, in this process. A wakeup is a hint; the truth is read from Postgres. */
export class Wakeups {
  readonly #waiting = new Map<string, Set<() => void>>();
  #closed = false;

  wake(ownerId: string): void {
    for (const resolve of this.#waiting.get(ownerId) ?? []) resolve();
  }

  /** After a lost connection: anybody may have missed something. */
  wakeAll(): void {
    for (const ownerId of this.#waiting.keys()) this.wake(ownerId);
  }

  close(): void {
    this.#closed = true;
    this.wakeAll();
  }

  get isClosed(): boolean {
    return this.#closed;
  }

  /** Owners with open streams. */
  owners(): string[] {
    return [...this.#waiting.keys()];
  }

  /** How many streams an owner has open here. */
  count(ownerId: string): number {
    return this.#waiting.get(ownerId)?.size ?? 0;
  }

  /** Begins to listen at once, so that news between a read and the wait is not missed. */
  subscribe(ownerId: string): { wait(timeoutMs: number): Promise<boolean>; end(): void } {
    let isAwake = false;
    let notify: (() => void) | undefined;
    const wake = (): void => {
      isAwake = true;
      notify?.();
    };
    const waiting = this.#waiting.get(ownerId) ?? new Set();
    this.#waiting.set(ownerId, waiting.add(wake));
    return {
      /** True when there may be news, false when the time is over. */
      wait: (timeoutMs) =>
        new Promise((resolve) => {
          const finish = (news: boolean): void => {
            clearTimeout(timer);
            notify = undefined;
            isAwake = false;
            resolve(news);
          };
          const timer = setTimeout(() => finish(false), timeoutMs);
          notify = () => finish(true);
          if (isAwake || this.#closed) finish(true);
        }),
      end: () => {
        waiting.delete(wake);
        if (waiting.size === 0) this.#waiting.delete(ownerId);
      },
    };
  }
}
