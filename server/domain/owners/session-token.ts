import { createHash, randomBytes } from "node:crypto";

/** Sessions end after a day unused, and after a week in any case (database clock). */
export const SESSION_IDLE_SECONDS = 24 * 3600;
export const SESSION_ABSOLUTE_SECONDS = 7 * 24 * 3600;

const TOKEN_SHAPE = /^[A-Za-z0-9_-]{43}$/;

/** 256 random bits, opaque. Only its hash is stored. */
export const createSessionToken = (): string => randomBytes(32).toString("base64url");

export const isSessionTokenShape = (text: string): boolean => TOKEN_SHAPE.test(text);

export const hashSessionToken = (token: string): Buffer =>
  createHash("sha256").update(token).digest();
