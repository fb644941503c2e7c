/**
 * Protects local mode from DNS rebinding. There every client that reaches the port may use its test money, so a foreign
 * page must not reach it: it could resolve its own host name to this machine, and the browser would treat that as the
 * same origin. The Host header reveals such a request.
 */
import fp from "fastify-plugin";
import { readHostName } from "../../../packages/paywall/src/host.ts";
import { isLoopbackHost } from "../../core/client-address.ts";
import { ApiError } from "../../errors.ts";

export default fp(
  async (app) => {
    const { mode, publicUrl } = app.config;
    const ownName = new URL(publicUrl).hostname;
    app.addHook("onRequest", (request, _reply, done) => {
      const { host } = request.headers;
      // Node would refuse this without a body; HTTP/1.0 may omit the header.
      if (host === undefined && request.raw.httpVersion === "1.1")
        throw new ApiError("bad_request", { detail: "The request has no Host header." });
      const name = readHostName(host ?? "");
      if (mode !== "local") {
        if (host !== undefined && name === undefined)
          throw new ApiError("bad_request", {
            detail: "The Host header must be a host with an optional port.",
          });
        return done();
      }
      if (name !== undefined && (name === ownName || isLoopbackHost(name))) return done();
      throw new ApiError("host_not_allowed", {
        detail: `This service runs on this machine only. Call it as ${[...new Set(["localhost", ownName])].join(" or ")}.`,
      });
    });
  },
  { name: "own-host" },
);
