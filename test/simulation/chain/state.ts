/** The chain's storage, with the value of each entry at every block, so that old states can be read and undone. */

export type Value = bigint | string;

interface Version {
  block: number;
  value: Value | undefined;
}

export class State {
  readonly #entries = new Map<string, Version[]>();
  /** By block number: the entries that the block changed. */
  readonly #changed: string[][] = [];

  read(key: string, block: number): Value | undefined {
    const versions = this.#entries.get(key);
    if (versions === undefined) return undefined;
    for (let index = versions.length - 1; index >= 0; index -= 1) {
      const version = versions[index];
      if (version !== undefined && version.block <= block) return version.value;
    }
    return undefined;
  }

  /** Blocks are written in order. */
  write(key: string, value: Value | undefined, block: number): void {
    const versions = this.#entries.get(key) ?? [];
    if (versions.length === 0) this.#entries.set(key, versions);
    const last = versions.at(-1);
    if (last?.block === block) {
      last.value = value;
      return;
    }
    versions.push({ block, value });
    (this.#changed[block] ??= []).push(key);
  }

  /** Removes what this block, which is the newest, has written, and returns it. */
  undo(block: number): Map<string, Value | undefined> {
    const removed = new Map<string, Value | undefined>();
    for (const key of this.#changed[block] ?? [])
      removed.set(key, this.#entries.get(key)?.pop()?.value);
    this.#changed.length = Math.min(this.#changed.length, block);
    return removed;
  }
}
