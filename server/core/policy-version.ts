import { ApiError } from "../errors.ts";
import { PolicyVersionUnknown } from "./orders.ts";

/** Refuses by name what a newer release wrote, instead of calling it a forgery. */
export function refusingUnknownVersion<T>(read: () => T): T {
  try {
    return read();
  } catch (error) {
    if (!(error instanceof PolicyVersionUnknown)) throw error;
    throw new ApiError("policy_version_unknown", {
      cause: error,
      detail: `${error.message} A newer release of this service last changed them. Nothing was signed.`,
    });
  }
}
