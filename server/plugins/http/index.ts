/** What every request passes, whoever asks: errors, headers, limits, who may call, and what is not there. */
import fp from "fastify-plugin";
import errors from "./errors.ts";
import requestLog from "./request-log.ts";
import headers from "./headers.ts";
import cors from "./cors.ts";
import rateLimit from "./rate-limit.ts";
import failedCredentials from "./failed-credentials.ts";
import routeAuth from "./route-auth.ts";
import bodyDepth from "./body-depth.ts";
import openapi from "./openapi.ts";
import docsPage from "./docs-page.ts";
import routeLookup from "./route-lookup.ts";
import notFound from "./not-found.ts";

export default fp(
  async (app) => {
    await app.register(errors);
    await app.register(requestLog);
    await app.register(headers);
    await app.register(cors);
    await app.register(rateLimit);
    await app.register(failedCredentials);
    await app.register(routeAuth);
    await app.register(bodyDepth);
    await app.register(openapi);
    await app.register(docsPage);
    await app.register(routeLookup);
    await app.register(notFound);
  },
  { name: "http-module" },
);
