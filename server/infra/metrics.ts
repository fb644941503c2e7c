import fp from "fastify-plugin";
import { Histogram, Registry, collectDefaultMetrics } from "prom-client";

declare module "fastify" {
  interface FastifyInstance {
    /** One registry per app, so that several apps in one process (tests) do not collide. */
    metrics: Registry;
  }
}

export default fp(
  async (app) => {
    const registry = new Registry();
    collectDefaultMetrics({ register: registry });
    const seconds = new Histogram({
      name: "purser_http_request_seconds",
      help: "Time to answer, by route and status",
      labelNames: ["method", "route", "status"],
      buckets: [0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 15, 30],
      registers: [registry],
    });
    app.decorate("metrics", registry);
    app.addHook("onResponse", async (request, reply) => {
      const route = request.is404 ? "none" : (request.routeOptions.url ?? "none");
      seconds.observe(
        { method: request.method, route, status: reply.statusCode },
        reply.elapsedTime / 1000,
      );
    });
    app.addHook("onClose", async () => registry.clear());
  },
  { name: "metrics" },
);
