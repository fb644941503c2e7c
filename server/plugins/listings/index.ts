import fp from "fastify-plugin";
import { ListingBook } from "./book.ts";

declare module "fastify" {
  interface FastifyInstance {
    /** The listings as a paid fetch meets them. */
    listingBook: ListingBook;
  }
}

export default fp(
  async (app) => {
    app.decorate("listingBook", new ListingBook(app.prisma));
  },
  { name: "listing-book" },
);
