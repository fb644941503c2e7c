/** The facilitator behind a paywall failed us: nothing is served, and nothing is claimed about money. */
export class FacilitatorFault extends Error {
  override name = "FacilitatorFault";
  /** What Fastify's own error handler answers with. */
  readonly statusCode: 502 | 503;

  constructor(statusCode: 502 | 503, message: string, options?: ErrorOptions) {
    super(message, options);
    this.statusCode = statusCode;
  }
}

/** Our own errors (`ApiError`) say themselves what they are to be answered with, and pass through. */
export function asFault(error: unknown, statusCode: 502 | 503, message: string): Error {
  if (error instanceof Error && typeof (error as { status?: unknown }).status === "number")
    return error;
  return new FacilitatorFault(statusCode, message, { cause: error });
}
