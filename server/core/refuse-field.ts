import { ApiError, type ErrorCode } from "../errors.ts";

/** The refusal of one field of a request, by its path. */
export const refuseField = (code: ErrorCode, path: string, message: string): ApiError =>
  new ApiError(code, { detail: `${path} ${message}`, extra: { errors: [{ path, message }] } });
