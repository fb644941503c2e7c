import "@fontsource-variable/geist";
import "@fontsource-variable/geist-mono";
import type { Theme } from "vitepress";
import base from "vitepress/theme-without-fonts";
import { h } from "vue";
import ApiReference from "./ApiReference.vue";
import "./style.css";

const theme: Theme = {
  extends: base,
  // With a target, or the site would look for the app among its own pages.
  Layout: () =>
    h(base.Layout, null, {
      "nav-bar-content-after": () =>
        h("a", { class: "open-app", href: "/", target: "_self" }, "Open the app"),
    }),
  enhanceApp: ({ app }) => void app.component("ApiReference", ApiReference),
};

export default theme;
