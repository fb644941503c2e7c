import fp from "fastify-plugin";
import { Listings, type Prober } from "../domain/listings/listings.ts";
import { reprobeDue } from "../domain/listings/reprobe.ts";

declare module "fastify" {
  interface FastifyInstance {
    /** The marketplace: listings, their pinned terms, and what settles here announced itself. */
    listings: Listings;
    /** Probes every listing that is due, now. The job queue calls it every minute. */
    reprobeListings(): Promise<number>;
  }
}

export default fp(
  async (app) => {
    const probe: Prober = (url, options) =>
      (app as unknown as { x402Client: { probe: Prober } }).x402Client.probe(url, options);
    let isStopping = false;
    app.addHook("preClose", async () => {
      isStopping = true;
    });
    app.decorate(
      "listings",
      new Listings({
        pool: app.pool,
        probe,
        networks: app.config.networks,
        onBackgroundError: (err, what) => app.log.warn({ err }, `${what} failed`),
      }),
    );
    app.decorate("reprobeListings", () => reprobeDue({ pool: app.pool, probe }, () => isStopping));
  },
  { name: "listings", dependencies: ["db"] },
);
