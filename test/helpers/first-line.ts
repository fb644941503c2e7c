import { createInterface } from "node:readline";
import type { Readable } from "node:stream";

/** The first line that a program prints; empty if it ends without one. */
export async function firstLine(stdout: Readable): Promise<string> {
  const lines = createInterface({ input: stdout });
  for await (const line of lines) return line;
  return "";
}
