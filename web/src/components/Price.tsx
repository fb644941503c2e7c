import type { ReactNode } from "react";
import { Money } from "./Money.tsx";

export interface PriceProps {
  of: { price?: string | null; maximum?: true };
}

/** What a seller asks for a call. A seller that charges by use names only the most. */
export const Price = ({ of: { price = null, maximum } }: PriceProps): ReactNode => (
  <span>
    {maximum && "up to "}
    <Money amount={price} />
  </span>
);
