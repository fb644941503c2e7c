/** A failure that the person at the terminal can fix: shown as one line, without a stack trace. */
export class StartError extends Error {
  override readonly name = "StartError";
}

const FILE_PROBLEMS: Record<string, string> = {
  EACCES: "this user may not write there",
  EPERM: "this user may not write there",
  EROFS: "it is on a read-only disk",
  ENOSPC: "the disk is full",
  EDQUOT: "the disk quota is used up",
  ENOTDIR: "part of the path is a file",
  EEXIST: "a file exists at this path",
  ENOENT: "it cannot be created there",
};

/** Turns a file system error into one sentence for the person at the terminal. */
export function plainly(error: unknown, dataDir: string): unknown {
  const problem = FILE_PROBLEMS[(error as NodeJS.ErrnoException).code ?? ""];
  if (error instanceof StartError || problem === undefined) return error;
  return new StartError(`the data folder ${dataDir} cannot be used: ${problem}.`, { cause: error });
}
