import type { FastifyRequest, FastifyServerOptions } from "fastify";
import pino from "pino";

export interface LogDestination {
  write(line: string): void;
}

/** Whatever could carry a secret is cut before a line is written. */
const SECRET_PATHS = [
  "authorization",
  "cookie",
  "apiKey",
  "privateKey",
  "signature",
  "token",
  "password",
  "*.authorization",
  "*.cookie",
  "*.apiKey",
  "*.privateKey",
  "*.signature",
  "*.token",
  "*.password",
  'headers["set-cookie"]',
  'headers["payment-signature"]',
  'headers["x-payment"]',
];

/** A key somebody put into a path by mistake. */
const API_KEY = /purser_[0-9A-Za-z]{20,}/g;

/** Query strings never reach the log: they may carry what a careless client put there. */
const requestSerializer = (request: FastifyRequest): Record<string, unknown> => ({
  method: request.method,
  path: request.url.split("?", 1)[0]?.replaceAll(API_KEY, "purser_[secret]"),
  ip: request.ip,
});

export function loggerOptions(
  level: string,
  destination?: LogDestination,
): FastifyServerOptions["logger"] {
  return {
    level,
    redact: { paths: SECRET_PATHS, censor: "[secret]" },
    serializers: { req: requestSerializer, err: pino.stdSerializers.err },
    ...(destination ? { stream: destination } : {}),
  };
}
