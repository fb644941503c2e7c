/** A failure that the person at the terminal can fix: shown as one line, without a stack trace. */
export class StartError extends Error {
  override readonly name = "StartError";
}

const PART_IS_FILE = "it or a part of its path is a file";

const FILE_PROBLEMS: Record<string, string> = {
  EACCES: "this user may not write there",
  EPERM: "this user may not write there",
  EROFS: "it is on a read-only disk",
  ENOSPC: "the disk is full",
  EDQUOT: "the disk quota is used up",
  // Which of the two it is depends on the version of Node.
  ENOTDIR: PART_IS_FILE,
  EEXIST: PART_IS_FILE,
  ENOENT: "it cannot be created there",
};

/** Turns a file system error into one sentence for the person at the terminal. */
export function plainly(error: unknown, dataDir: string): unknown {
  const problem = FILE_PROBLEMS[(error as NodeJS.ErrnoException).code ?? ""];
  if (error instanceof StartError || problem === undefined) return error;
  return new StartError(`the data folder ${dataDir} cannot be used: ${problem}.`, { cause: error });
}
