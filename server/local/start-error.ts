/** A failure the person at the terminal can act on: shown as one line, without a stack trace. */
export class StartError extends Error {
  override readonly name = "StartError";
}
