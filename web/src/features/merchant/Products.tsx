import { EmptyState, Text } from "@mantine/core";
import { useInfiniteQuery } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { Section } from "../../components/Layout.tsx";
import { List } from "../../components/List.tsx";
import { Money } from "../../components/Money.tsx";
import { formatUsdc } from "../../lib/money.ts";
import { plural } from "../../lib/plural.ts";
import type { MerchantProduct } from "../../lib/wire.ts";
import { productsQuery } from "./api.ts";
import styles from "./Merchant.module.css";
import { resourceLabel } from "./words.ts";

/** What was sold: one row for each URL and method. */
export function Products({ days }: { days: string }): ReactNode {
  const query = useInfiniteQuery(productsQuery(days));
  return (
    <Section
      flush
      title="By product"
      hint="By URL and method, as the payments name them. The buyers' programs wrote them, so they prove nothing."
    >
      <List
        query={query}
        what="products"
        failed="Products could not be loaded"
        placeholders={3}
        empty={<EmptyState title="Nothing sold in this time" />}
      >
        {(product) => <ProductRow key={product.id} product={product} />}
      </List>
    </Section>
  );
}

function ProductRow({ product }: { product: MerchantProduct }): ReactNode {
  const { thirdParty, settled, pending, failed, refused, refunded, refusals } = product;
  const label = resourceLabel(thirdParty);
  const counts = [
    `${settled} sold`,
    pending > 0 && `${pending} pending`,
    refunded !== "0" && `${formatUsdc(refunded)} USDC refunded`,
    failed > 0 && `${failed} failed`,
    refused > 0 && `${refused} refused`,
  ].filter((text) => text !== false);
  return (
    <li className={`list-row ${styles.product}`}>
      <div>
        <p className={styles.name}>
          {label === undefined ? "Payments that name no product" : `“${label}”`}
        </p>
        <Text c="dimmed" size="sm">
          {counts.join(" · ")}
        </Text>
        {refusals.length > 0 && (
          <ul className={styles.causes} aria-label="Why payments were refused">
            {refusals.map(({ reason, message, fix, count }) => (
              <li key={reason}>
                {message} <span className={styles.times}>{plural(count, "time")}.</span>
                {fix !== null && <span className={styles.fix}>{fix}</span>}
              </li>
            ))}
          </ul>
        )}
      </div>
      <Money amount={product.volume} />
    </li>
  );
}
