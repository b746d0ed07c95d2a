// The token stands behind the # of an invitation, where no server sees it. It is sent once, and taken out of the address.
"use strict";
const token = decodeURIComponent(location.hash.slice(1));
if (token) {
  history.replaceState(null, "", location.pathname);
  document.getElementById("token").value = token;
  document.getElementById("enter").submit();
}
