import { open, rename } from "node:fs/promises";

/** Replaces a file whole or not at all, also through a power cut. */
export async function writeFileAtomic(
  path: string,
  content: string | Uint8Array,
  mode = 0o600,
): Promise<void> {
  const draft = `${path}.new`;
  const file = await open(draft, "w", mode);
  try {
    await file.writeFile(content);
    await file.sync();
  } finally {
    await file.close();
  }
  await rename(draft, path);
}
