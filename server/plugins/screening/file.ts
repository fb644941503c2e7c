/** A list in a local file, which is read again when it changed. A broken file leaves the last good list in force. */
import { open, stat } from "node:fs/promises";
import type { FileHandle } from "node:fs/promises";
import { readList, type AddressList } from "./list.ts";
import { ScreeningFailed, type ScreeningSource } from "./source.ts";

interface FileListOptions {
  path: string;
  /** An older list counts as failed. */
  maxAgeSeconds?: number | undefined;
  lookMs: number;
  nowMs: () => number;
  log: Record<"info" | "error", (fields: object, message: string) => void>;
}

interface Loaded extends AddressList {
  date: Date;
  stamp: string;
}

const MAX_BYTES = 64 * 1024 * 1024;

export class FileList implements ScreeningSource {
  readonly #options: FileListOptions;
  readonly #timer: NodeJS.Timeout;
  #list: Loaded;
  /** Of the file that was read last, good or broken. */
  #stamp: string;
  #looking: Promise<void> | undefined;

  private constructor(options: FileListOptions, list: Loaded) {
    this.#options = options;
    this.#list = list;
    this.#stamp = list.stamp;
    this.#timer = setInterval(() => void this.look(), options.lookMs).unref();
  }

  /** Throws ScreeningFailed if there is no good list. */
  static async open(options: FileListOptions): Promise<FileList> {
    const list = await load(options.path, options.nowMs());
    report(options, list);
    return new FileList(options, list);
  }

  async blockedAmong(addresses: readonly string[]): Promise<readonly string[]> {
    const { maxAgeSeconds } = this.#options;
    const ageSeconds = this.ageSeconds();
    if (maxAgeSeconds !== undefined && ageSeconds > maxAgeSeconds)
      throw new ScreeningFailed(
        `the list is ${Math.floor(ageSeconds / 3_600)} hours old; at most ${maxAgeSeconds / 3_600} are allowed`,
      );
    return addresses.filter((address) => this.#list.addresses.has(address));
  }

  ageSeconds(): number {
    return Math.max(0, (this.#options.nowMs() - this.#list.date.getTime()) / 1_000);
  }

  /** Reads the file again if it changed. */
  look(): Promise<void> {
    this.#looking ??= this.#look().finally(() => {
      this.#looking = undefined;
    });
    return this.#looking;
  }

  close(): void {
    clearInterval(this.#timer);
  }

  async #look(): Promise<void> {
    const { path, nowMs, log } = this.#options;
    const stamp = await stampOf(path);
    if (stamp === this.#stamp) return;
    try {
      const list = await load(path, nowMs());
      this.#list = list;
      this.#stamp = list.stamp;
      report(this.#options, list);
    } catch (error) {
      // It is still being written: the next look reads it.
      if (error instanceof FileChanging) return;
      this.#stamp = stamp;
      log.error(
        { err: error, ageSeconds: Math.floor(this.ageSeconds()) },
        "the list of screened addresses is broken; the last good one stays in force",
      );
    }
  }
}

class FileChanging extends ScreeningFailed {}

function report({ log }: FileListOptions, { addresses, date }: Loaded): void {
  log.info({ addresses: addresses.size, date }, "the list of screened addresses was read");
}

const stampOf = (path: string): Promise<string> =>
  stat(path).then(textOf, (error: unknown) => String((error as NodeJS.ErrnoException).code));

/** A file that was replaced, also through a symbolic link, has another one. */
const textOf = (stats: { ino: number; size: number; mtimeMs: number; ctimeMs: number }): string =>
  [stats.ino, stats.size, stats.mtimeMs, stats.ctimeMs].join(" ");

/** Its own date, else the time at which it was written. */
export async function load(path: string, nowMs: number): Promise<Loaded> {
  let file: FileHandle | undefined;
  try {
    file = await open(path, "r");
    const before = await file.stat();
    if (!before.isFile()) throw new ScreeningFailed("it is not a file");
    if (before.size > MAX_BYTES)
      throw new ScreeningFailed(`it is larger than ${MAX_BYTES / 1024 / 1024} MB`);
    const text = await file.readFile("utf8");
    const stamp = textOf(before);
    if (textOf(await file.stat()) !== stamp) throw new FileChanging("it is being written");
    const list = await readList(text, nowMs);
    return { addresses: list.addresses, date: list.date ?? before.mtime, stamp };
  } catch (error) {
    if (error instanceof ScreeningFailed) throw error;
    const { code = "unknown" } = error as NodeJS.ErrnoException;
    throw new ScreeningFailed(`it cannot be read (${code})`, { cause: error });
  } finally {
    await file?.close();
  }
}
