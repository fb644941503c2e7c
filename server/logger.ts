import type { FastifyRequest, FastifyServerOptions } from "fastify";
import pino from "pino";

export interface LogDestination {
  write(line: string): void;
}

/** Whatever could carry a secret is cut before a line is written (design section 3: default deny). */
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

/** Query strings never reach the log: they may carry what a careless client put there. */
const requestSerializer = (request: FastifyRequest): Record<string, unknown> => ({
  method: request.method,
  path: request.url.split("?", 1)[0],
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
